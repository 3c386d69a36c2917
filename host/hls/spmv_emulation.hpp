// The emulated side of target.hpp: processes are fibers, and every access to a memory port is held
// against the buffer that the launch gave to it.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include "hls_stream.h"
#include "hls_vector.h"
#include "launch.h"

// Labels and HLS pragmas speak to the synthesis tool. (g++ before version 13 heeds this for labels
// only: call it with -Wno-unknown-pragmas.)
#pragma GCC diagnostic ignored "-Wunused-label"
#pragma GCC diagnostic ignored "-Wunknown-pragmas"

#define SPMV_DATAFLOW(name) spmv::emulation::Dataflow spmv_region(#name);
#define SPMV_STREAM(type, name, stream_depth) hls::stream<type> name(#name, stream_depth)
#define SPMV_STREAM_SRL(type, name, stream_depth) SPMV_STREAM(type, name, stream_depth)
#define SPMV_PROCESS(function, ...) spmv_region.spawn(#function, [&] { function(__VA_ARGS__); })
#define SPMV_REQUIRE(condition, text)                     \
  do {                                                    \
    if (!(condition)) throw spmv::emulation::Error(text); \
  } while (false)
#define SPMV_JOIN() spmv_region.run()

namespace spmv {
namespace emulation {

// The launch that this thread runs.
inline const spmv_fpga_launch*& current_launch() {
  thread_local const spmv_fpga_launch* launch = nullptr;
  return launch;
}

inline void check_access(const void* port, unsigned index, std::size_t word_bytes,
                         const char* verb) {
  const spmv_fpga_launch& launch = *current_launch();
  for (unsigned i = 0; i < launch.num_arguments; ++i) {
    const spmv_fpga_buffer& buffer = launch.buffers[i];
    if (buffer.begin != port) continue;
    const std::uint64_t offset = std::uint64_t{index} * word_bytes;
    if (offset + word_bytes <= buffer.bytes) return;
    throw Error("argument " + std::string(buffer.name) + ": " + verb + " at offset " +
                std::to_string(offset) + ", outside its buffer of " + std::to_string(buffer.bytes) +
                " bytes");
  }
  throw Error(std::string(verb) + " through a pointer that is no argument of the kernel");
}

// Runs the kernel's top function for a launch; what goes wrong becomes the launch's error text.
template <typename Top>
inline void run_launch(spmv_fpga_launch& launch, Top top) {
  current_launch() = &launch;
  try {
    if (launch.version != SPMV_FPGA_LAUNCH_VERSION)
      throw Error("the emulated card is of another version");
    top();
  } catch (const std::exception& error) {
    std::strncpy(launch.error, error.what(), launch.error_capacity - 1);
    launch.error[launch.error_capacity - 1] = '\0';
  }
  current_launch() = nullptr;
}

}  // namespace emulation

template <typename T>
inline T load(const T* port, unsigned index) {
  emulation::check_access(port, index, sizeof(T), "read");
  return port[index];
}

template <typename T>
inline void store(T* port, unsigned index, const T& word) {
  emulation::check_access(port, index, sizeof(T), "write");
  port[index] = word;
}

}  // namespace spmv
