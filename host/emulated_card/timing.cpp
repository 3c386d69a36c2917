#include "timing.hpp"

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "report.hpp"

namespace emulated_card {
namespace {

bool read_line(const std::string &line, Timing &timing) {
  std::istringstream words(line);
  words.imbue(std::locale::classic());
  std::string kind, unit, argument;
  words >> kind;
  if (kind == "memory") {
    spmv_fpga_memory &memory = timing.memory;
    words >> memory.bytes_per_cycle >> memory.setup_cycles >> memory.latency_cycles >>
        memory.burst_words;
    return !words.fail() && memory.bytes_per_cycle > 0.0 && memory.setup_cycles >= 0.0;
  }
  PortTiming port;
  words >> unit >> argument >> port.bank >> port.sharers >> port.outstanding;
  timing.ports[{unit, argument}] = port;
  return kind == "port" && !words.fail();
}

Timing read_timing() {
  Timing timing;
  const char *path = std::getenv("SPMV_FPGA_EMULATION_TIMING");
  if (!path || !*path) return timing;
  std::ifstream file(path);
  if (!file) die(std::string("the timing file ") + path + " cannot be read.");
  for (std::string line; std::getline(file, line);) {
    if (!read_line(line, timing))
      die(std::string("the timing file ") + path + " has a line that is no timing: " + line);
  }
  timing.is_known = timing.memory.bytes_per_cycle > 0.0;
  return timing;
}

}  // namespace

const Timing &timing() {
  static const Timing known = read_timing();
  return known;
}

}  // namespace emulated_card
