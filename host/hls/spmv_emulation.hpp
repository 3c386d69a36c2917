// The emulated side of target.hpp: processes are fibers with clocks, and every access to a memory
// port is held against the buffer that the launch gave to it, and charged to its channel.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include "hls_stream.h"
#include "hls_vector.h"
#include "launch.h"
#include "report.hpp"

// Labels and HLS pragmas speak to the synthesis tool. (g++ before version 13 heeds this for labels
// only: call it with -Wno-unknown-pragmas.)
#pragma GCC diagnostic ignored "-Wunused-label"
#pragma GCC diagnostic ignored "-Wunknown-pragmas"

#define SPMV_DATAFLOW(name) spmv::emulation::Dataflow spmv_region(#name);
#define SPMV_STREAM(type, name, stream_depth) hls::stream<type> name(#name, stream_depth)
#define SPMV_STREAM_SRL(type, name, stream_depth) SPMV_STREAM(type, name, stream_depth)
#define SPMV_PROCESS(function, ...) \
  spmv_region.spawn(#function, #__VA_ARGS__, [&] { function(__VA_ARGS__); })
#define SPMV_ACCUMULATOR(name, size, distance) \
  spmv::emulation::Accumulator name##_use(#name, spmv::emulation::current_clock(), size, distance)
#define SPMV_READS(name, index) name##_use.reads(index)
#define SPMV_WRITES(name, index) name##_use.writes(index)
#define SPMV_REQUIRE(condition, text)                     \
  do {                                                    \
    if (!(condition)) throw spmv::emulation::Error(text); \
  } while (false)
#define SPMV_JOIN() spmv_region.run()

namespace spmv {
namespace emulation {

// The launch that this thread runs.
inline Launch*& current_launch() {
  thread_local Launch* launch = nullptr;
  return launch;
}

// Of the process that calls.
inline ProcessClock& current_clock() {
  ProcessClock* clock = running_clock();
  if (!clock) throw Error("only a process of a region has a clock");
  return *clock;
}

inline MemoryPort& port_for(const void* port, unsigned index, std::size_t word_bytes,
                            const char* verb) {
  MemoryPort* found = current_launch()->port(port);
  if (!found)
    throw Error(std::string(verb) + " through a pointer that is no argument of the kernel");
  const spmv_fpga_buffer& buffer = found->buffer();
  if (!found->is_used_by(running_clock()))
    throw Error("argument " + std::string(buffer.name) + " is used by two processes");
  const std::uint64_t offset = std::uint64_t{index} * word_bytes;
  if (offset + word_bytes <= buffer.bytes) return *found;
  throw Error("argument " + std::string(buffer.name) + ": " + verb + " at offset " +
              std::to_string(offset) + ", outside its buffer of " + std::to_string(buffer.bytes) +
              " bytes");
}

// Runs the kernel's top function for a launch; what goes wrong becomes the launch's error text.
template <typename Top>
inline void run_launch(spmv_fpga_launch& facts, Top top) {
  Launch launch(facts);
  try {
    if (facts.version != SPMV_FPGA_LAUNCH_VERSION)
      throw Error("the emulated card is of another version");
    current_launch() = &launch;
    current_timekeeper() = &launch;
    top();
    launch.write_report();
  } catch (const std::exception& error) {
    launch.write_error(error.what());
  }
  current_timekeeper() = nullptr;
  current_launch() = nullptr;
}

}  // namespace emulation

template <typename T>
inline T load(const T* port, unsigned index) {
  emulation::port_for(port, index, sizeof(T), "read")
      .read(emulation::current_clock(), index, sizeof(T));
  return port[index];
}

template <typename T>
inline void store(T* port, unsigned index, const T& word) {
  emulation::port_for(port, index, sizeof(T), "write")
      .write(emulation::current_clock(), index, sizeof(T));
  port[index] = word;
}

inline void tick(unsigned cycles = 1) { emulation::current_clock().tick(cycles); }

inline void result_latency(unsigned cycles) {
  emulation::ProcessClock& clock = emulation::current_clock();
  clock.own_latency = std::max<emulation::cycle_t>(clock.own_latency, cycles);
  clock.latency = std::max(clock.latency, clock.own_latency);
}

inline void drain() { emulation::current_clock().drain(); }

}  // namespace spmv
