// Words of a memory port, and what is in them.
#pragma once

#include <cstdint>

#include "target.hpp"

namespace spmv {

constexpr unsigned kLanes = 16;  // 32-bit lanes of a 512-bit port

typedef hls::vector<std::uint32_t, kLanes> word_t;  // raw bits: values, indices or descriptors
typedef hls::vector<float, kLanes> floats_t;        // elements of x or y

static_assert(sizeof(word_t) == 64 && sizeof(floats_t) == 64, "a port is 512 bits wide");

// Padding is the bit pattern of -0.0, which no entry has.
constexpr std::uint32_t kPadding = 0x80000000u;

inline float float_of(std::uint32_t bits) {
#pragma HLS inline
  union {
    std::uint32_t bits;
    float value;
  } pun;
  pun.bits = bits;
  return pun.value;
}

inline std::uint32_t bits_of(float value) {
#pragma HLS inline
  union {
    std::uint32_t bits;
    float value;
  } pun;
  pun.value = value;
  return pun.bits;
}

// The product of a slot: +0 for padding, whatever x holds (0 * NaN would be NaN).
inline float product_of(std::uint32_t value_bits, float x) {
#pragma HLS inline
  const float product = float_of(value_bits) * x;
  return value_bits == kPadding ? 0.0f : product;
}

constexpr unsigned at_least(unsigned least, unsigned value) {
  return value < least ? least : value;
}

constexpr unsigned words_for(unsigned num_elements) { return (num_elements + kLanes - 1) / kLanes; }

constexpr unsigned log2_of(unsigned power_of_two) {
  return power_of_two < 2 ? 0 : 1 + log2_of(power_of_two / 2);
}

// Cycles of a floating addition, which reduce.hpp binds; a multiplication takes no longer.
constexpr unsigned kAdderLatency = 6;

// Sum of the first kCount elements as a balanced tree: log2(kCount) additions deep.
template <unsigned kCount>
inline float tree_sum(const float* terms) {
#pragma HLS inline
  static_assert((kCount & (kCount - 1)) == 0, "a balanced tree has a power of two of leaves");
  float sums[kCount];
#pragma HLS array_partition variable = sums complete
CopyLeaves:
  for (unsigned i = 0; i < kCount; ++i) {
#pragma HLS unroll
    sums[i] = terms[i];
  }
AddLevels:
  for (unsigned width = kCount / 2; width > 0; width /= 2) {
#pragma HLS unroll
  AddPairs:
    for (unsigned i = 0; i < width; ++i) {
#pragma HLS unroll
      sums[i] = sums[2 * i] + sums[2 * i + 1];
    }
  }
  return sums[0];
}

}  // namespace spmv
