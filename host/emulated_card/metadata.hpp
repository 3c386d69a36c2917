// Kernels, arguments and compute units, from the XML that an xclbin carries.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace emulated_card {

struct Argument {
  std::string name;
  bool is_pointer = false;
  uint64_t id = 0;
  uint64_t offset = 0;  // in the register map, bytes
  uint64_t bytes = 0;
};

struct Instance {
  std::string name;
  uint64_t base = 0;
  uint64_t range = 0;
};

struct KernelInfo {
  std::string name;
  std::vector<Argument> arguments;  // in the order of their ids
  std::vector<Instance> instances;
};

// Throws std::runtime_error with the reason.
std::vector<KernelInfo> read_metadata(const std::string &path);

}  // namespace emulated_card
