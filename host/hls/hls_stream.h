// hls::stream for a plain C++ compiler: bounded, as deep as the kernel declares. Reading an empty
// stream or writing a full one lets the other processes of the region run.
#pragma once

#include <string>
#include <vector>

#include "fibers.hpp"

namespace hls {

template <typename T>
class stream final : public spmv::emulation::Channel {
 public:
  // A FIFO without a pragma is two deep in Vitis HLS.
  explicit stream(const char* name = "stream", unsigned depth = 2) : Channel(name, depth) {}

  stream(const stream&) = delete;
  stream& operator=(const stream&) = delete;

  T read() {
    if (is_empty()) wait_for_data();
    const T token = tokens_[head_];
    head_ = next(head_);
    took_token();
    return token;
  }

  void write(const T& token) {
    if (is_full()) wait_for_room();
    tokens_[tail_] = token;
    tail_ = next(tail_);
    put_token();
  }

  void read(T& token) { token = read(); }
  bool empty() const { return is_empty(); }
  bool full() const { return is_full(); }

 private:
  unsigned next(unsigned place) const { return place + 1 == depth() ? 0 : place + 1; }

  std::vector<T> tokens_ = std::vector<T>(depth());
  unsigned head_ = 0;
  unsigned tail_ = 0;
};

}  // namespace hls
