// The card's diary, and its only ways to die.
//
// XRT notices that the card is gone only if it died by a signal; after an exit the
// host waits for ever. So every error ends in a signal, and since a signal has no
// words, one line of JSON goes first into the file that SPMV_FPGA_EMULATION_REPORT
// names. Each line is one write to a file opened for appending: lines never mix.
#pragma once

#include <string>

namespace emulated_card {

// Opens the diary and reports crashes from now on.
void open_report();

// Makes the calling thread speak for a compute unit, and gives it the stack on which a
// crash is reported: the kernel's own stack may be what overflowed.
void enter_unit(const char *unit);

void report_error(const char *unit, const std::string &message);
void report_launch(const char *unit, unsigned long long launch, std::string report);

[[noreturn]] void die(const std::string &message);  // names the thread's compute unit
[[noreturn]] void leave();                          // the host is gone or done: no error

}  // namespace emulated_card
