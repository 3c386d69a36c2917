// hls::vector for a plain C++ compiler: N elements of T, stored without gaps and aligned to their
// whole size, as on a memory port.
#pragma once

#include <cstddef>

namespace hls {

constexpr std::size_t alignment_for(std::size_t bytes) {
  std::size_t alignment = 1;
  while (alignment < bytes) alignment *= 2;
  return alignment;
}

template <typename T, std::size_t N>
struct alignas(alignment_for(N * sizeof(T))) vector {
  T& operator[](std::size_t lane) { return lanes[lane]; }
  const T& operator[](std::size_t lane) const { return lanes[lane]; }

  T lanes[N];
};

}  // namespace hls
