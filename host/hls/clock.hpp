// The clock of an emulated kernel: when everything would happen on the chip.
//
// Every process has its own cycle counter. A token carries the cycle from which its reader may take
// it, a free slot the cycle from which the writer may fill it. What moves a counter:
//
//   pace    a port of a stream does one transfer a cycle, and `tick` is a cycle of its own
//   data    a read waits for the token
//   room    a write waits for the slot, which the read `depth` tokens earlier has freed
//   memory  a word of a memory port waits for the channel
//   reuse   an accumulator waits for the adder (a hazard: hardware would need a longer interval)
//
// No counter depends on the order in which processes happen to run, so that the cycles of a launch
// follow from the kernel and its data alone.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "launch.h"

namespace spmv {
namespace emulation {

typedef std::uint64_t cycle_t;

#ifdef SPMV_UNTIMED  // the emulation without its clock: what benchmarks compare with
constexpr bool kIsTimed = false;
#else
constexpr bool kIsTimed = true;
#endif

constexpr cycle_t kStreamLatency = 1;  // a token is readable the cycle after its writing

// Where a process is in time.
//
// `now` is the cycle in which its present iteration starts. What the iteration writes leaves
// `latency` cycles later; a pipeline that cannot deliver stops as a whole, its start included.
struct ProcessClock {
  cycle_t began = 0;
  cycle_t now = 0;
  cycle_t latency = 0;
  cycle_t own_latency = 0;  // of its operators; the rest is the memory's, until it has drained
  cycle_t next_tick = 0;    // step in which the next iteration may start
  cycle_t waited = 0;       // for all causes
  cycle_t ends = 0;         // when the last result is where it belongs
  cycle_t waited_for_memory = 0;
  cycle_t waited_for_reuse = 0;
  cycle_t refilled = 0;  // while a pipeline ran empty, between loops and at the end
  cycle_t num_hazards = 0;

  void begin(cycle_t cycle) { began = now = cycle; }

  // Cycles in which the pipeline moved: what iterations are apart, and transfers of a port. While
  // it waits, all that is in it stands still.
  cycle_t steps() const { return now - waited; }

  // An iteration that takes so many cycles.
  void tick(cycle_t cycles) {
    pace(next_tick);
    next_tick = steps() + cycles;
  }

  // The cycle in which the present iteration is over.
  cycle_t over() const { return now + std::max<cycle_t>(next_tick, steps() + 1) - steps(); }

  // Work until at least `step`; a branch, so that no chain of stores and loads builds up.
  void pace(cycle_t step) {
    if (step > steps()) now += step - steps();
  }

  // Work that ends at `cycle`.
  void work_until(cycle_t cycle) { now = std::max(now, cycle); }

  void wait(cycle_t cycle, cycle_t& cause) {
    if (cycle <= now) return;
    cause += cycle - now;
    waited += cycle - now;
    now = cycle;
  }

  // The loop before is over when its last result has left, and the memory has answered its writes.
  void drain() {
    const cycle_t last = over();
    now = std::max(last + latency, ends);
    refilled += now - last;
    latency = own_latency;
  }

  void end() {
    const cycle_t last = over();
    ends = std::max(ends, last + latency);
    refilled += ends - last;
  }
};

// What a slot of a stream remembers: from when the other side may have it, and when its last token
// was taken.
struct SlotClock {
  cycle_t ready = 0;
  cycle_t taken = 0;
};

// The cycles of one stream.
class StreamClock {
 public:
  cycle_t waited_for_data = 0;
  cycle_t waited_for_room = 0;
  unsigned most = 0;  // tokens at one time

  // Returns the cycle in which the process takes the token.
  cycle_t read(ProcessClock& process, SlotClock& slot) {
    process.pace(next_read_);
    process.wait(slot.ready, waited_for_data);
    next_read_ = process.steps() + 1;
    slot.taken = process.now;
    slot.ready = process.now + 1;
    return process.now;
  }

  // One token leaves a cycle: no more were there when this one was written than have left since.
  bool is_no_fuller(cycle_t readable, cycle_t taken) const {
    return taken - readable + kStreamLatency < most;
  }

  // `before` is the slot of the token `most` places before: was it still there when this one came?
  void compare(cycle_t readable, const SlotClock& before) {
    if (most == 0 || before.taken + kStreamLatency >= readable) ++most;
  }

  void write(ProcessClock& process, SlotClock& slot) {
    process.pace(next_write_);
    next_write_ = process.steps() + 1;
    cycle_t leaves = process.now + process.latency;
    if (slot.ready > leaves) {
      process.wait(process.now + slot.ready - leaves, waited_for_room);
      leaves = slot.ready;
    }
    slot.ready = leaves + kStreamLatency;
  }

 private:
  cycle_t next_read_ = 0;  // steps of the reader, and of the writer
  cycle_t next_write_ = 0;
};

// A memory argument of the kernel and its share of a channel.
//
// Words come in bursts of consecutive ones. A burst is requested ahead of its use, as soon as the
// adapter has room for it: when the burst `outstanding` places before has been taken. Its first
// word comes after the memory's latency, which the pipeline of the loop holds, and the words follow
// at the rate of the channel. A break in the sequence costs the channel a set-up.
class MemoryPort {
 public:
  MemoryPort(const spmv_fpga_buffer& buffer, const spmv_fpga_memory* memory)
      : buffer_(&buffer), is_timed_(kIsTimed && memory) {
    if (!is_timed_) return;
    latency_ = memory->latency_cycles;
    burst_words_ = std::max(1u, memory->burst_words);
    bank_bytes_per_cycle_ = memory->bytes_per_cycle;
    bytes_per_cycle_ = bank_bytes_per_cycle_ / std::max(1u, buffer.sharers);
    setup_ = fine(memory->setup_cycles * std::max(1u, buffer.sharers));
    taken_.resize(std::max(1u, buffer.outstanding));
  }

  const spmv_fpga_buffer& buffer() const { return *buffer_; }
  std::uint64_t num_words() const { return num_words_; }
  std::uint64_t num_bytes() const { return num_bytes_; }
  std::uint64_t num_bursts() const { return num_bursts_; }
  cycle_t waited() const { return waited_; }
  // What its bytes take of a bank that nobody else uses.
  double cycles_of_bank() const {
    return is_timed_ ? static_cast<double>(num_bytes_) / bank_bytes_per_cycle_ : 0.0;
  }

  // A port is a process's own, as a stream's end is: two would take their turns by chance.
  bool is_used_by(const void* process) {
    if (!user_) user_ = process;
    return user_ == process;
  }

  // The next region has other processes.
  void release() { user_ = nullptr; }

  void read(ProcessClock& process, std::uint64_t index, std::size_t word_bytes) {
    if (is_timed_) transfer(process, index, word_bytes, false);
  }

  void write(ProcessClock& process, std::uint64_t index, std::size_t word_bytes) {
    if (is_timed_) transfer(process, index, word_bytes, true);
  }

 private:
  // Parts of a cycle, so that rates need not be whole.
  static constexpr unsigned kFineBits = 20;
  static cycle_t fine(double cycles) {
    return static_cast<cycle_t>(cycles * (cycle_t{1} << kFineBits) + 0.5);
  }

  void transfer(ProcessClock& process, std::uint64_t index, std::size_t word_bytes, bool is_write) {
    if (word_bytes != word_bytes_) {
      word_bytes_ = word_bytes;
      interval_ = std::max(cycle_t{1} << kFineBits,
                           fine(static_cast<double>(word_bytes) / bytes_per_cycle_));
    }
    process.latency = std::max(process.latency, latency_);
    process.pace(next_step_);
    cycle_t ready = last_ + interval_;
    const bool follows = num_words_ > 0 && index == next_index_;
    if (!follows || words_left_ == 0) ready = begin_burst(process, follows, ready);
    const cycle_t cycle = (ready + (cycle_t{1} << kFineBits) - 1) >> kFineBits;
    // The word is due `latency` cycles after the start of its iteration.
    if (cycle > latency_) {
      const cycle_t before = process.now;
      process.wait(cycle - latency_, process.waited_for_memory);
      waited_ += process.now - before;
    }
    last_ = ready;
    next_step_ = process.steps() + 1;
    taken_[burst_] = process.now + latency_ + (is_write ? latency_ : 0);
    if (is_write) process.ends = std::max(process.ends, taken_[burst_] + 1);
    next_index_ = index + 1;
    --words_left_;
    ++num_words_;
    num_bytes_ += word_bytes;
  }

  cycle_t begin_burst(const ProcessClock& process, bool follows, cycle_t ready) {
    burst_ = burst_ + 1 == taken_.size() ? 0 : burst_ + 1;
    words_left_ = burst_words_;
    ++num_bursts_;
    const cycle_t has_room = taken_[burst_];
    const cycle_t requested = follows ? has_room : std::max(process.now, has_room);
    if (!follows) ready += setup_;
    return std::max(ready, (requested + latency_) << kFineBits);
  }

  const spmv_fpga_buffer* buffer_;
  const void* user_ = nullptr;
  bool is_timed_;
  cycle_t latency_ = 0;
  unsigned burst_words_ = 1;
  double bank_bytes_per_cycle_ = 1.0;
  double bytes_per_cycle_ = 1.0;
  cycle_t setup_ = 0;  // in parts of a cycle
  std::size_t word_bytes_ = 0;
  cycle_t interval_ = 0;        // between words, in parts of a cycle
  cycle_t last_ = 0;            // when the last word was ready, in parts of a cycle
  std::vector<cycle_t> taken_;  // when the last word of each burst in flight was taken
  std::size_t burst_ = 0;
  unsigned words_left_ = 0;
  std::uint64_t next_index_ = 0;
  cycle_t next_step_ = 0;
  std::uint64_t num_words_ = 0;
  std::uint64_t num_bytes_ = 0;
  std::uint64_t num_bursts_ = 0;
  cycle_t waited_ = 0;
};

// Elements that a process reads, adds to and writes back. One may be read only `distance` steps of
// the pipeline after it was written: sooner, the adder would not be done.
class Accumulator {
 public:
  Accumulator(const char* name, ProcessClock& process, std::size_t size, unsigned distance)
      : name_(name), process_(process), there_(size), distance_(distance) {}

  void reads(std::size_t index) {
    if (!kIsTimed || step() >= element(index)) return;
    ++process_.num_hazards;
    process_.wait(process_.now + element(index) - step(), process_.waited_for_reuse);
  }

  void writes(std::size_t index) {
    if (kIsTimed) element(index) = step() + distance_;
  }

 private:
  // While the loop waits for the adder, the adder goes on.
  cycle_t step() const { return process_.steps() + process_.waited_for_reuse; }

  cycle_t& element(std::size_t index) {
    if (index < there_.size()) return there_[index];
    throw std::out_of_range("accumulator " + std::string(name_) + " has " +
                            std::to_string(there_.size()) + " elements, and element " +
                            std::to_string(index) + " is used");
  }

  const char* name_;
  ProcessClock& process_;
  std::vector<cycle_t> there_;  // step from which each element may be read
  unsigned distance_;
};

}  // namespace emulation
}  // namespace spmv
