// What differs between synthesis and emulation, and nothing else: how a data-flow region, its
// streams and its processes are written, how a memory port is read and written, and what the
// emulation's clock cannot see by itself.
//
// In synthesis (and in a vendor's C simulation) each macro is one plain line of Vitis HLS, or none.
// With SPMV_EMULATION a plain C++ compiler runs every process as a fiber over bounded streams, and
// counts its cycles (host/hls/clock.hpp).
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

// An array whose elements are read, added to and written back; where one is read, and written. The
// emulation reports a read that comes sooner than `distance` iterations after a write: a hazard.
#define SPMV_ACCUMULATOR(name, size, distance) static_cast<void>(0)
#define SPMV_READS(name, index) static_cast<void>(0)
#define SPMV_WRITES(name, index) static_cast<void>(0)

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

// What synthesis knows and the emulation's clock must be told. A stream moves one token a cycle, so
// a loop whose iterations all use the same stream needs no word.

// First line of an iteration in any other loop: it takes a cycle.
inline void tick(unsigned = 1) {
#pragma HLS inline
}

// What an iteration computes leaves so many cycles after its start.
inline void result_latency(unsigned) {
#pragma HLS inline
}

// Between two loops of a process: the first one's pipeline runs empty before the second starts.
inline void drain() {
#pragma HLS inline
}

}  // namespace spmv

#endif
