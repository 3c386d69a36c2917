#include "timing.hpp"

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "report.hpp"

namespace emulated_card {
namespace {

constexpr double kMostCycles = 1e6;  // no card is as slow, and no rate as low
constexpr double kLeastRate = 1e-6;
constexpr long long kMostNumber = 1 << 20;

bool is_number(std::istream &words, unsigned least, unsigned &number) {
  long long value = -1;
  words >> value;
  number = static_cast<unsigned>(value);
  return !words.fail() && value >= least && value <= kMostNumber;
}

bool is_at_end(std::istream &words) {
  std::string more;
  return !(words >> more);
}

bool read_line(const std::string &line, Timing &timing) {
  std::istringstream words(line);
  words.imbue(std::locale::classic());
  std::string kind, unit, argument;
  words >> kind;
  if (kind == "memory") {
    spmv_fpga_memory &memory = timing.memory;
    const bool is_first = memory.burst_words == 0;
    words >> memory.bytes_per_cycle >> memory.setup_cycles;
    return is_first && memory.bytes_per_cycle >= kLeastRate &&
           memory.bytes_per_cycle <= kMostCycles && memory.setup_cycles >= 0.0 &&
           memory.setup_cycles <= kMostCycles && is_number(words, 0, memory.latency_cycles) &&
           is_number(words, 1, memory.burst_words) && is_at_end(words);
  }
  PortTiming port;
  words >> unit >> argument;
  const bool is_sound = is_number(words, 0, port.bank) && is_number(words, 1, port.sharers) &&
                        is_number(words, 1, port.outstanding) && is_at_end(words);
  timing.ports[{unit, argument}] = port;
  return kind == "port" && is_sound;
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
  timing.is_known = timing.memory.burst_words > 0;
  if (!timing.is_known) die(std::string("the timing file ") + path + " has no line for memory.");
  return timing;
}

}  // namespace

const Timing &timing() {
  static const Timing known = read_timing();
  return known;
}

}  // namespace emulated_card
