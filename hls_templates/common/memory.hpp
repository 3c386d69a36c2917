// Processes at the memory ports: a loop that only reads or only writes becomes bursts.
#pragma once

#include "words.hpp"

namespace spmv {

inline void read_words(const word_t* port, hls::stream<word_t>& words, unsigned num_words) {
ReadWords:
  for (unsigned i = 0; i < num_words; ++i) {
#pragma HLS pipeline II = 1
    words.write(load(port, i));
  }
}

// All that a unit reads: x first, for nothing can be multiplied before it is on the chip, then the
// matrix stream. One process, so that both may also come through one port (link.cfg decides).
inline void read_inputs(const floats_t* x, const word_t* matrix, hls::stream<floats_t>& x_words,
                        hls::stream<word_t>& words, unsigned num_x_words, unsigned num_words) {
ReadX:
  for (unsigned i = 0; i < num_x_words; ++i) {
#pragma HLS pipeline II = 1
    x_words.write(load(x, i));
  }
  drain();
ReadMatrix:
  for (unsigned i = 0; i < num_words; ++i) {
#pragma HLS pipeline II = 1
    words.write(load(matrix, i));
  }
}

// Fills the on-chip copy of x; one word of 16 elements a cycle.
inline void fill_x(hls::stream<floats_t>& x_words, floats_t* x_copy, unsigned num_x_words) {
#pragma HLS inline
FillX:
  for (unsigned i = 0; i < num_x_words; ++i) {
#pragma HLS pipeline II = 1
    x_copy[i] = x_words.read();
  }
  drain();
}

inline void write_y(hls::stream<floats_t>& y_words, floats_t* y, unsigned num_y_words) {
WriteY:
  for (unsigned i = 0; i < num_y_words; ++i) {
#pragma HLS pipeline II = 1
    store(y, i, y_words.read());
  }
}

}  // namespace spmv
