// What differs between synthesis and emulation, and nothing else: how a data-flow region, its
// streams and its processes are written, and how a memory port is read and written.
//
// In synthesis (and in a vendor's C simulation) each macro is one plain line of Vitis HLS. With
// SPMV_EMULATION a plain C++ compiler runs every process as a fiber over bounded streams.
#pragma once

#ifdef SPMV_EMULATION

#include "spmv_emulation.hpp"

#else

#include <hls_stream.h>
#include <hls_vector.h>

#define SPMV_PRAGMA(text) _Pragma(#text)

// First line of a data-flow function: only streams and process calls follow.
#define SPMV_DATAFLOW(name) SPMV_PRAGMA(HLS dataflow)

// A stream between two processes. Vitis 2020.2 wants it static; later versions allow it.
#define SPMV_STREAM(type, name, stream_depth) \
  static hls::stream<type> name(#name);       \
  SPMV_PRAGMA(HLS stream variable = name depth = stream_depth)

// One held in shift registers, 32 words in a LUT for every bit: HLS would take eight block RAMs
// for a FIFO of 512 bits, however short.
#define SPMV_STREAM_SRL(type, name, stream_depth) \
  SPMV_STREAM(type, name, stream_depth)           \
  SPMV_PRAGMA(HLS bind_storage variable = name type = fifo impl = srl)

#define SPMV_PROCESS(function, ...) function(__VA_ARGS__)

// What must hold for every matrix that the host packs; hardware has no way to say that it does not.
#define SPMV_REQUIRE(condition, text) static_cast<void>(0)

// Last line of a data-flow function: all processes have ended behind it.
#define SPMV_JOIN() static_cast<void>(0)

namespace spmv {

template <typename T>
inline T load(const T* port, unsigned index) {
#pragma HLS inline
  return port[index];
}

template <typename T>
inline void store(T* port, unsigned index, const T& word) {
#pragma HLS inline
  port[index] = word;
}

}  // namespace spmv

#endif
