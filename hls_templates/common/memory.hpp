// Processes at the memory ports: a loop that only reads or only writes becomes bursts.
#pragma once

#include "words.hpp"

namespace spmv {

// The matrix stream, word by word.
inline void read_matrix(const word_t* matrix, hls::stream<word_t>& words, unsigned num_words) {
ReadMatrix:
  for (unsigned i = 0; i < num_words; ++i) {
#pragma HLS pipeline II = 1
    words.write(load(matrix, i));
  }
}

// Fills the on-chip copy of x; one word of 16 elements a cycle.
inline void load_x(const floats_t* x, floats_t* x_words, unsigned num_x_words) {
#pragma HLS inline
LoadX:
  for (unsigned i = 0; i < num_x_words; ++i) {
#pragma HLS pipeline II = 1
    x_words[i] = load(x, i);
  }
}

inline void write_y(hls::stream<floats_t>& y_words, floats_t* y, unsigned num_y_words) {
WriteY:
  for (unsigned i = 0; i < num_y_words; ++i) {
#pragma HLS pipeline II = 1
    store(y, i, y_words.read());
  }
}

}  // namespace spmv
