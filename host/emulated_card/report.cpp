#include "report.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace emulated_card {
namespace {

constexpr size_t kAlternateStackBytes = 64 << 10;
constexpr int kCrashSignals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};

int report_file = -1;
std::atomic<bool> is_told{false};  // the cause is written; the abort that follows adds nothing
thread_local const char *current_unit = nullptr;

std::string quoted(const char *text) {
  std::string out = "\"";
  for (; *text; ++text) {
    const unsigned char c = static_cast<unsigned char>(*text);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += *text;
    } else if (c < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", c);
      out += escape;
    } else {
      out += *text;
    }
  }
  return out + '"';
}

std::string name_of(const char *unit) { return unit ? quoted(unit) : "null"; }

void write_line(const char *text, size_t bytes) {
  const int file = report_file >= 0 ? report_file : STDERR_FILENO;
  while (write(file, text, bytes) < 0 && errno == EINTR) {
  }
}

const char *meaning(int signal_number) {
  switch (signal_number) {
    case SIGSEGV:
      return "SIGSEGV (an address that is not mapped)";
    case SIGBUS:
      return "SIGBUS (an address that cannot be used)";
    case SIGFPE:
      return "SIGFPE (an integer division by zero)";
    case SIGILL:
      return "SIGILL (an instruction that does not exist)";
    default:
      return "SIGABRT (it gave up by itself)";
  }
}

// Only async-signal-safe calls: the heap may be what broke.
void on_crash(int signal_number) {
  if (!is_told.exchange(true)) {
    char line[512] = "{\"unit\": ";
    size_t used = std::strlen(line);
    const auto append = [&](const char *text) {
      while (*text && used < sizeof line - 1) line[used++] = *text++;
    };
    if (current_unit) {
      append("\"");
      append(current_unit);
      append("\", \"error\": \"the kernel crashed with ");
    } else {
      append("null, \"error\": \"the emulated card crashed with ");
    }
    append(meaning(signal_number));
    append("\"}\n");
    write_line(line, used);
  }
  raise(signal_number);  // SA_RESETHAND: this time it kills
}

void watch_signals() {
  struct sigaction action {};
  action.sa_handler = on_crash;
  action.sa_flags = SA_ONSTACK | SA_RESETHAND | SA_NODEFER;
  for (const int signal_number : kCrashSignals) sigaction(signal_number, &action, nullptr);
  signal(SIGPIPE, SIG_IGN);
}

}  // namespace

void open_report() {
  const char *path = std::getenv("SPMV_FPGA_EMULATION_REPORT");
  if (path && *path) {
    report_file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  }
  prctl(PR_SET_DUMPABLE, 0);  // a crash leaves no core file
  enter_unit(nullptr);
  watch_signals();
  // A kernel that calls exit would leave the host waiting for ever.
  std::atexit([] { die("the kernel called exit; it must return."); });
}

void enter_unit(const char *unit) {
  current_unit = unit;
  stack_t stack{};
  stack.ss_size = kAlternateStackBytes;
  stack.ss_sp =
      mmap(nullptr, stack.ss_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (stack.ss_sp != MAP_FAILED) sigaltstack(&stack, nullptr);
}

void report_error(const char *unit, const std::string &message) {
  const std::string line =
      "{\"unit\": " + name_of(unit) + ", \"error\": " + quoted(message.c_str()) + "}\n";
  write_line(line.data(), line.size());
}

void report_launch(const char *unit, unsigned long long launch, std::string report) {
  if (report_file < 0) return;
  for (char &c : report) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  const std::string line = "{\"unit\": " + name_of(unit) +
                           ", \"launch\": " + std::to_string(launch) + ", \"report\": " + report +
                           "}\n";
  write_line(line.data(), line.size());
}

void die(const std::string &message) {
  if (!is_told.exchange(true)) report_error(current_unit, message);
  std::abort();
}

void leave() { _exit(0); }

}  // namespace emulated_card
