// Processes of a data-flow region as cooperative fibers over bounded channels, each with its clock.
//
// One thread runs a region: its processes take turns, each until it must wait. That needs no locks,
// gives the same order every time, and shows a deadlock at once: nobody can run, and every process
// names the channel that it waits for. A channel has one reader and one writer, as in hardware.
#pragma once

#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "clock.hpp"

namespace spmv {
namespace emulation {

// Something that the kernel does wrong; its text reaches the user.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Channel;

// Memory of a fiber, lazily given by the system, with a page below it that must not be touched. A
// process may keep its on-chip memories there.
class Stack {
 public:
  static constexpr std::size_t kBytes = std::size_t{64} << 20;
  static constexpr std::size_t kGuardBytes = 4096;

  Stack() {
    memory_ = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory_ == MAP_FAILED) throw Error("no memory for the stack of a process");
    mprotect(memory_, kGuardBytes, PROT_NONE);
  }
  ~Stack() { munmap(memory_, kBytes); }
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;

  void* memory() const { return memory_; }

 private:
  void* memory_;
};

struct Fiber {
  Fiber(const char* fiber_name, const char* fiber_arguments, std::function<void()> fiber_body)
      : name(fiber_name), arguments(fiber_arguments), body(std::move(fiber_body)) {}

  const char* name;
  const char* arguments;  // as the source writes them: two calls of a function differ in these
  std::function<void()> body;
  ProcessClock clock;
  Stack stack;
  jmp_buf place;  // where to go on
  bool has_started = false;
  bool has_ended = false;
  const Channel* waits_for = nullptr;
};

class Dataflow;

// The part of a stream that does not depend on what it carries.
class Channel {
 public:
  Channel(const char* name, unsigned depth);

  const char* name() const { return name_; }
  unsigned depth() const { return depth_; }
  unsigned size() const { return size_; }
  const StreamClock& clock() const { return clock_; }
  virtual cycle_t num_tokens() const = 0;  // that were read
  const Fiber* reader() const { return reader_; }
  const Fiber* writer() const { return writer_; }

 protected:
  ~Channel() = default;
  bool is_empty() const { return size_ == 0; }
  bool is_full() const { return size_ == depth_; }
  inline void took_token();
  inline void put_token();
  ProcessClock& reader_clock() { return clock_of(reader_); }
  ProcessClock& writer_clock() { return clock_of(writer_); }
  StreamClock clock_;
  void wait_for_data() { wait(reader_, waiting_reader_); }
  void wait_for_room() { wait(writer_, waiting_writer_); }

 private:
  inline ProcessClock& clock_of(Fiber*& side);
  inline void require_own(Fiber*& side) const;
  inline void wait(Fiber*& side, Fiber*& waiting);

  const char* name_;
  unsigned depth_;
  unsigned size_ = 0;
  Dataflow* region_;
  Fiber* reader_ = nullptr;  // who used that end first
  Fiber* writer_ = nullptr;
  Fiber* waiting_reader_ = nullptr;  // set while it waits
  Fiber* waiting_writer_ = nullptr;
};

// What is known of a region when all its processes have ended.
class Timekeeper {
 public:
  virtual void note(const std::string& region, const std::vector<std::unique_ptr<Fiber>>& fibers,
                    const std::vector<const Channel*>& channels) = 0;

  cycle_t now = 0;  // of the launch, outside all regions

 protected:
  ~Timekeeper() = default;
};

// Of the launch that this thread runs; null where nobody asks for the time.
inline Timekeeper*& current_timekeeper() {
  thread_local Timekeeper* keeper = nullptr;
  return keeper;
}

// Of the process that runs on this thread; null outside all.
inline ProcessClock*& running_clock() {
  thread_local ProcessClock* clock = nullptr;
  return clock;
}

// A region: made first, then its streams and processes; `run` returns when all have ended.
class Dataflow {
 public:
  explicit Dataflow(const char* name) : name_(name), outer_(current()) { current() = this; }
  ~Dataflow() { current() = outer_; }
  Dataflow(const Dataflow&) = delete;
  Dataflow& operator=(const Dataflow&) = delete;

  static Dataflow*& current() {
    thread_local Dataflow* region = nullptr;
    return region;
  }

  void add(const Channel* channel) { channels_.push_back(channel); }

  void spawn(const char* process, const char* arguments, std::function<void()> body) {
    fibers_.push_back(std::make_unique<Fiber>(process, arguments, std::move(body)));
    fibers_.back()->clock.begin(outer_now());
    ready_.push_back(fibers_.back().get());
  }

  void run() {
    ProcessClock* const outer = running_clock();
    while (!ready_.empty()) {
      running_ = ready_.front();
      ready_.pop_front();
      running_clock() = &running_->clock;
      resume(*running_);
      running_clock() = outer;
      if (error_) std::rethrow_exception(error_);
    }
    require_all_ended();
    require_all_empty();
    tell_the_time();
  }

  // The process that runs; null between processes.
  Fiber* running() const { return running_; }

  void wake(Fiber*& fiber) {
    if (!fiber) return;
    ready_.push_back(fiber);
    fiber = nullptr;
  }

  // The process that uses a channel just now.
  Fiber& process_of(const Channel& channel) const {
    if (!running_)
      throw Error("stream " + std::string(channel.name()) + " is used outside a process");
    return *running_;
  }

  // Called by a process: lets the others run until `channel` wakes it.
  void suspend(Fiber*& side, const Channel* channel) {
    Fiber* self = &process_of(*channel);
    side = self;
    self->waits_for = channel;
    if (_setjmp(self->place) == 0) _longjmp(scheduler_, 1);
    self->waits_for = nullptr;
  }

 private:
  void resume(Fiber& fiber) {
    if (_setjmp(scheduler_) == 0) {
      if (fiber.has_started) _longjmp(fiber.place, 1);
      start(fiber);
    }
    running_ = nullptr;
  }

  void start(Fiber& fiber) {
    fiber.has_started = true;
    ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = fiber.stack.memory();
    context.uc_stack.ss_size = Stack::kBytes;
    context.uc_link = nullptr;
    const auto address = reinterpret_cast<std::uintptr_t>(this);
    makecontext(&context, reinterpret_cast<void (*)()>(&Dataflow::enter), 2,
                static_cast<unsigned>(address & 0xFFFFFFFFu),
                static_cast<unsigned>(std::uint64_t{address} >> 32));
    setcontext(&context);
  }

  // makecontext passes integers only: the region's address comes in two halves.
  static void enter(unsigned low, unsigned high) {
    const std::uint64_t address = std::uint64_t{high} << 32 | low;
    auto& region = *reinterpret_cast<Dataflow*>(static_cast<std::uintptr_t>(address));
    Fiber& fiber = *region.running_;
    try {
      fiber.body();
    } catch (...) {
      region.error_ = std::current_exception();
    }
    fiber.clock.end();
    fiber.has_ended = true;
    _longjmp(region.scheduler_, 1);
  }

  // A region within a process runs in that process's time.
  ProcessClock* outer_clock() const {
    return outer_ && outer_->running_ ? &outer_->running_->clock : nullptr;
  }

  cycle_t outer_now() const {
    if (const ProcessClock* outer = outer_clock()) return outer->over();
    return current_timekeeper() ? current_timekeeper()->now : 0;
  }

  void tell_the_time() const {
    cycle_t end = outer_now();
    for (const auto& fiber : fibers_) end = std::max(end, fiber->clock.ends);
    if (ProcessClock* outer = outer_clock()) {
      outer->work_until(end);
    } else if (Timekeeper* keeper = current_timekeeper()) {
      keeper->now = end;
    }
    if (current_timekeeper()) current_timekeeper()->note(name_, fibers_, channels_);
  }

  void require_all_ended() const {
    std::string waiting;
    for (const auto& fiber : fibers_) {
      if (fiber->has_ended) continue;
      const Channel& channel = *fiber->waits_for;
      waiting += waiting.empty() ? " " : ", ";
      waiting += std::string(fiber->name) + " waits for ";
      waiting += channel.size() == 0 ? "data in the empty stream " : "room in the full stream ";
      waiting += std::string(channel.name()) + " (depth " + std::to_string(channel.depth()) + ")";
    }
    if (!waiting.empty()) throw Error("deadlock in region " + name_ + ":" + waiting);
  }

  void require_all_empty() const {
    for (const Channel* channel : channels_) {
      if (channel->size() == 0) continue;
      throw Error("stream " + std::string(channel->name()) + " of region " + name_ +
                  " still holds " + std::to_string(channel->size()) + " tokens that nobody reads");
    }
  }

  std::string name_;
  Dataflow* outer_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<const Channel*> channels_;
  std::deque<Fiber*> ready_;
  Fiber* running_ = nullptr;
  jmp_buf scheduler_;
  std::exception_ptr error_;
};

inline Channel::Channel(const char* name, unsigned depth)
    : name_(name), depth_(depth), region_(Dataflow::current()) {
  if (depth == 0) throw Error("stream " + std::string(name) + " has no depth");
  if (!region_) throw Error("stream " + std::string(name) + " stands outside a data-flow region");
  region_->add(this);
}

inline void Channel::took_token() {
  --size_;
  if (waiting_writer_) region_->wake(waiting_writer_);
}

inline void Channel::put_token() {
  ++size_;
  if (waiting_reader_) region_->wake(waiting_reader_);
}

// A channel has one process at each end: who comes first stays.
inline ProcessClock& Channel::clock_of(Fiber*& side) {
  if (!side) require_own(side);
  return side->clock;
}

inline void Channel::require_own(Fiber*& side) const {
  if (Dataflow::current() != region_)
    throw Error("stream " + std::string(name_) + " is used in a region within its own");
  Fiber& process = region_->process_of(*this);
  if (!side) side = &process;
  if (side != &process)
    throw Error("stream " + std::string(name_) + " has two processes at one end");
}

inline void Channel::wait(Fiber*& side, Fiber*& waiting) {
  require_own(side);
  region_->suspend(waiting, this);
}

}  // namespace emulation
}  // namespace spmv
