// How fast the card's memory is, as the host program says it.
//
// The file that SPMV_FPGA_EMULATION_TIMING names has a line
//
//     memory BYTES_PER_CYCLE SETUP_CYCLES LATENCY_CYCLES BURST_WORDS
//
// and one for each memory argument of each compute unit:
//
//     port UNIT ARGUMENT BANK SHARERS OUTSTANDING
//
// launch.h says what the numbers are. Without the file, launches are not timed.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "../common/launch.h"

namespace emulated_card {

struct PortTiming {
  unsigned bank = 0;
  unsigned sharers = 1;
  unsigned outstanding = 1;
};

struct Timing {
  bool is_known = false;
  spmv_fpga_memory memory = {};
  std::map<std::pair<std::string, std::string>, PortTiming> ports;  // by unit and argument
};

// Reads the file once; dies if it is there and cannot be understood.
const Timing &timing();

}  // namespace emulated_card
