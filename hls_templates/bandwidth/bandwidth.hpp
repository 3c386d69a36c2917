// Kernel `bandwidth`: reads a buffer word by word and keeps only a checksum of it, so that nothing
// but the memory channel limits it. The paper measured its access roof with such a kernel (section
// 4.3).
//
//   data ─► read_words ─► words ─► fold ─► folded ─► write_checksum ─► checksum
#pragma once

#include "constants.hpp"
#include "memory.hpp"
#include "words.hpp"

namespace spmv {

constexpr unsigned kWordDepth = 32;  // what a LUT holds as a shift register

// Lane by lane exclusive or: one cycle of latency, and no word can be left out unseen.
inline void fold(hls::stream<word_t>& words, hls::stream<word_t>& folded, unsigned num_words) {
  word_t sum;
ClearLanes:
  for (unsigned lane = 0; lane < kLanes; ++lane) {
#pragma HLS unroll
    sum[lane] = 0;
  }
Fold:
  for (unsigned i = 0; i < num_words; ++i) {
#pragma HLS pipeline II = 1
    const word_t word = words.read();
  FoldLanes:
    for (unsigned lane = 0; lane < kLanes; ++lane) {
#pragma HLS unroll
      sum[lane] ^= word[lane];
    }
  }
  folded.write(sum);
}

inline void write_checksum(hls::stream<word_t>& folded, word_t* checksum) {
  store(checksum, 0, folded.read());
}

// One pass over the buffer. All processes run side by side.
inline void pass(const word_t* data, word_t* checksum, unsigned num_words) {
  SPMV_DATAFLOW(bandwidth)
  SPMV_STREAM_SRL(word_t, words, kWordDepth);
  SPMV_STREAM_SRL(word_t, folded, kWordDepth);
  SPMV_PROCESS(read_words, data, words, num_words);
  SPMV_PROCESS(fold, words, folded, num_words);
  SPMV_PROCESS(write_checksum, folded, checksum);
  SPMV_JOIN();
}

// The pass, `iterations` times: launch overhead then leaves a measurement.
inline void bandwidth(const word_t* data, word_t* checksum, unsigned num_words,
                      unsigned iterations) {
Iterate:
  for (unsigned i = 0; i < iterations; ++i) {
    pass(data, checksum, num_words);
  }
}

}  // namespace spmv
