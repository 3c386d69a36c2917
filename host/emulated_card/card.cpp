#include "card.hpp"

#include <dlfcn.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <stdexcept>

#include "../common/launch.h"
#include "report.hpp"
#include "timing.hpp"

namespace emulated_card {
namespace {

// The U50's HBM: 32 pseudo-channels of 256 MiB (AMD, DS965).
constexpr uint64_t kDefaultMemoryBytes = uint64_t{32} * (256 << 20);
constexpr uint64_t kDefaultRange = 0x10000;
constexpr uint64_t kRangeLimit = 1 << 20;
constexpr uint64_t kErrorBytes = 8 << 10;
constexpr uint64_t kReportBytes = 1 << 20;

// Word 0 of a register map (AMD, UG1399, "S_AXILITE control register map").
constexpr uint32_t kStart = 0x01;
constexpr uint32_t kDone = 0x02;
constexpr uint32_t kIdle = 0x04;
constexpr uint32_t kReady = 0x08;
constexpr uint32_t kContinue = 0x10;
constexpr uint64_t kControlBytes = 4;

// A memory argument's buffer, and its share of its bank where the host has told it.
spmv_fpga_buffer buffer_of(const std::string &unit, const std::string &argument, const char *begin,
                           uint64_t bytes) {
  PortTiming port;
  const auto &known = timing().ports;
  if (const auto found = known.find({unit, argument}); found != known.end()) port = found->second;
  return {argument.c_str(), begin, bytes, port.bank, port.sharers, port.outstanding};
}

std::string hex(uint64_t value) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

}  // namespace

Memory::~Memory() {
  if (base_) munmap(base_, bytes_);
}

void Memory::map(uint64_t bytes) {
  if (bytes == bytes_) return;
  if (base_) munmap(base_, bytes_);
  void *base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    die("no address space for the card's " + std::to_string(bytes) +
        " bytes of memory; raise the limit (ulimit -v).");
  }
  madvise(base, bytes, MADV_HUGEPAGE);  // a first copy is bound by page faults
  base_ = static_cast<char *>(base);
  bytes_ = bytes;
}

bool Memory::holds(uint64_t address, uint64_t bytes) const {
  return address <= bytes_ && bytes <= bytes_ - address;
}

char *Memory::at(uint64_t address, uint64_t bytes) {
  if (!holds(address, bytes)) {
    die("a copy of " + std::to_string(bytes) + " bytes at " + hex(address) +
        " leaves the card's memory of " + std::to_string(bytes_) + " bytes.");
  }
  return base_ + address;
}

void Buffers::add(uint64_t address, uint64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  bytes_at_[address] = bytes;
}

void Buffers::remove(uint64_t address) {
  const std::lock_guard<std::mutex> lock(mutex_);
  bytes_at_.erase(address);
}

uint64_t Buffers::bytes_from(uint64_t address) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto after = bytes_at_.upper_bound(address);
  if (after == bytes_at_.begin()) return 0;
  const auto &[begin, bytes] = *--after;
  return address - begin < bytes ? bytes - (address - begin) : 0;
}

Unit::Unit(const KernelInfo &kernel, const Instance &instance, KernelFunction function,
           Memory &memory, const Buffers &buffers)
    : kernel_(kernel),
      instance_(instance),
      function_(function),
      memory_(memory),
      buffers_(buffers),
      registers_(instance.range),
      control_(kIdle),
      error_(kErrorBytes),
      report_(kReportBytes),
      thread_(&Unit::serve, this) {}

Unit::~Unit() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_closing_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

bool Unit::holds(uint64_t address) const {
  return address >= instance_.base && address - instance_.base < registers_.size();
}

void Unit::write(uint64_t address, const std::string &bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const uint64_t offset = address - instance_.base;
  const uint64_t count = std::min<uint64_t>(bytes.size(), registers_.size() - offset);
  std::memcpy(registers_.data() + offset, bytes.data(), count);
  if (offset == 0 && count >= kControlBytes) {
    uint32_t word;
    std::memcpy(&word, bytes.data(), sizeof word);
    control(word);
  }
}

// XRT writes the whole map twice a launch, first with a control word of 0: only bits
// that are set mean anything.
void Unit::control(uint32_t word) {
  if (word & kContinue) control_ &= ~kDone;
  if (word & kStart) {
    control_ = kStart;
    waiting_.push_back(registers_);
    wake_.notify_one();
  }
}

void Unit::read(uint64_t address, std::string &bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::memcpy(registers_.data(), &control_, kControlBytes);
  const uint64_t offset = address - instance_.base;
  const uint64_t count = std::min<uint64_t>(bytes.size(), registers_.size() - offset);
  std::memcpy(bytes.data(), registers_.data() + offset, count);
}

void Unit::serve() {
  enter_unit(instance_.name.c_str());
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return is_closing_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    const Registers registers = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    launch(registers);
    lock.lock();
    control_ = waiting_.empty() ? kDone | kIdle | kReady : kDone | kStart;
  }
}

void Unit::launch(const Registers &registers) {
  const size_t count = kernel_.arguments.size();
  std::vector<uint64_t> values(count);
  std::vector<spmv_fpga_buffer> buffers(count);
  std::vector<char *> argv(count + 1);
  for (size_t i = 0; i < count; ++i) {
    const Argument &argument = kernel_.arguments[i];
    std::memcpy(&values[i], registers.data() + argument.offset, argument.bytes);
    buffers[i] = {argument.name.c_str(), nullptr, 0, 0, 0, 0};
    argv[i + 1] = reinterpret_cast<char *>(&values[i]);
    if (!argument.is_pointer) continue;
    const uint64_t address = values[i];
    const uint64_t bytes = buffers_.bytes_from(address);
    if (bytes == 0) {
      die("argument " + argument.name + " is card address " + hex(address) +
          ", which lies in no allocated buffer.");
    }
    char *begin = memory_.at(address, bytes);
    std::memcpy(&values[i], &begin, sizeof begin);
    buffers[i] = buffer_of(instance_.name, argument.name, begin, bytes);
  }
  error_[0] = report_[0] = '\0';
  spmv_fpga_launch launch = {SPMV_FPGA_LAUNCH_VERSION,
                             instance_.name.c_str(),
                             static_cast<unsigned>(count),
                             buffers.data(),
                             timing().is_known ? &timing().memory : nullptr,
                             error_.data(),
                             error_.size(),
                             report_.data(),
                             report_.size()};
  argv[0] = reinterpret_cast<char *>(&launch);
  try {
    function_(argv.data());
  } catch (const std::exception &problem) {
    die(std::string("the kernel threw an exception: ") + problem.what());
  }
  error_.back() = report_.back() = '\0';
  if (error_[0]) die(error_.data());
  ++num_launches_;
  if (!report_[0]) return;
  // The same launch takes the same cycles: it is told once, and then that it is as before.
  const bool is_new = last_report_ != report_.data();
  if (is_new) last_report_ = report_.data();
  report_launch(instance_.name.c_str(), num_launches_, is_new ? last_report_ : "null");
}

void Card::allocate_banks(const std::vector<uint64_t> &bank_bytes) {
  uint64_t total = 0;
  for (const uint64_t bytes : bank_bytes) total += bytes;
  if (total == 0 && has_memory_) return;
  memory_.map(total ? total : kDefaultMemoryBytes);
  has_memory_ = true;
}

Memory &Card::memory() {
  if (!has_memory_) allocate_banks({});
  return memory_;
}

namespace {

void check(const KernelInfo &kernel, const Instance &instance) {
  for (const Argument &argument : kernel.arguments) {
    const bool is_sound = argument.bytes > 0 && argument.bytes <= sizeof(uint64_t) &&
                          argument.offset <= instance.range - sizeof(uint64_t);
    if (!is_sound) {
      throw std::runtime_error("argument " + argument.name + " of kernel " + kernel.name + " has " +
                               std::to_string(argument.bytes) + " bytes at offset " +
                               hex(argument.offset));
    }
  }
}

KernelFunction find_kernel(void *library, const std::string &name) {
  void *symbol = dlsym(library, ("__stub____xlnx_cl_" + name).c_str());
  if (!symbol) throw std::runtime_error("its library does not export kernel " + name);
  return reinterpret_cast<KernelFunction>(symbol);
}

}  // namespace

void Card::load(const std::string &xml_path, const std::string &library_path) {
  units_.clear();  // waits for launches that are under way
  if (library_) dlclose(library_);
  library_ = dlopen(library_path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library_) throw std::runtime_error(std::string("its library does not load: ") + dlerror());
  for (const KernelInfo &kernel : read_metadata(xml_path)) {
    const KernelFunction function = find_kernel(library_, kernel.name);
    for (Instance instance : kernel.instances) {
      if (instance.range == 0) instance.range = kDefaultRange;
      instance.range = std::min(instance.range, kRangeLimit);
      check(kernel, instance);
      units_.push_back(std::make_unique<Unit>(kernel, instance, function, memory(), buffers_));
    }
  }
  if (units_.empty()) throw std::runtime_error("its XML names no compute unit");
}

// XRT keeps small command buffers of its own on the card; no kernel may touch them.
bool Card::add_buffer(uint64_t address, uint64_t bytes, bool is_for_user) {
  if (!memory().holds(address, bytes)) return false;
  if (is_for_user) buffers_.add(address, bytes);
  return true;
}

Unit *Card::unit_at(uint64_t address) {
  for (const auto &unit : units_) {
    if (unit->holds(address)) return unit.get();
  }
  return nullptr;
}

}  // namespace emulated_card
