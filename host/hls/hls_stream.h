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
    Slot& slot = slots_[head_];
    if constexpr (spmv::emulation::kIsTimed) count_read(slot.clock);
    advance(head_, num_rounds_);
    took_token();
    return slot.token;
  }

  void write(const T& token) {
    if (is_full()) wait_for_room();
    Slot& slot = slots_[tail_];
    if constexpr (spmv::emulation::kIsTimed) clock_.write(writer_clock(), slot.clock);
    slot.token = token;
    unsigned rounds = 0;
    advance(tail_, rounds);
    put_token();
  }

  void read(T& token) { token = read(); }
  bool empty() const { return is_empty(); }
  bool full() const { return is_full(); }

  spmv::emulation::cycle_t num_tokens() const override { return num_rounds_ * depth() + head_; }

 private:
  struct Slot {
    T token;
    spmv::emulation::SlotClock clock;
  };

  void count_read(spmv::emulation::SlotClock& slot) {
    const auto readable = slot.ready;
    const auto taken = clock_.read(reader_clock(), slot);
    if (clock_.is_no_fuller(readable, taken) || clock_.most == depth()) return;
    const unsigned before =
        head_ < clock_.most ? head_ + depth() - clock_.most : head_ - clock_.most;
    clock_.compare(readable, slots_[before].clock);
  }

  template <typename Rounds>
  void advance(unsigned& place, Rounds& rounds) const {
    if (++place == depth()) {
      place = 0;
      ++rounds;
    }
  }

  std::vector<Slot> slots_ = std::vector<Slot>(depth());
  unsigned head_ = 0;
  unsigned tail_ = 0;
  std::size_t num_rounds_ = 0;  // times that `head_` came round
};

}  // namespace hls
