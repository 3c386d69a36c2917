// The card itself: memory banks, allocated buffers, compute units.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "metadata.hpp"

namespace emulated_card {

// Banks lie end to end from card address 0. A page costs memory when it is first touched.
class Memory {
 public:
  ~Memory();
  void map(uint64_t bytes);
  bool holds(uint64_t address, uint64_t bytes) const;
  char *at(uint64_t address, uint64_t bytes);  // dies if that leaves the card's memory

 private:
  char *base_ = nullptr;
  uint64_t bytes_ = 0;
};

// What the host has allocated for its user.
class Buffers {
 public:
  void add(uint64_t address, uint64_t bytes);
  void remove(uint64_t address);
  uint64_t bytes_from(uint64_t address) const;  // to the end of its buffer; 0 if in none

 private:
  mutable std::mutex mutex_;
  std::map<uint64_t, uint64_t> bytes_at_;
};

using KernelFunction = void (*)(char **argv);

// One compute unit: its register map, and a thread that runs its launches in turn, so
// that the host can go on polling and other units run side by side.
class Unit {
 public:
  Unit(const KernelInfo &kernel, const Instance &instance, KernelFunction function, Memory &memory,
       const Buffers &buffers);
  ~Unit();
  Unit(const Unit &) = delete;
  Unit &operator=(const Unit &) = delete;

  bool holds(uint64_t address) const;
  void write(uint64_t address, const std::string &bytes);
  void read(uint64_t address, std::string &bytes);

 private:
  using Registers = std::vector<char>;

  void control(uint32_t word);
  void serve();
  void launch(const Registers &registers);

  const KernelInfo kernel_;
  const Instance instance_;
  const KernelFunction function_;
  Memory &memory_;
  const Buffers &buffers_;

  std::mutex mutex_;
  std::condition_variable wake_;
  Registers registers_;
  uint32_t control_;
  std::deque<Registers> waiting_;  // arguments as they were at each start
  bool is_closing_ = false;
  unsigned long long num_launches_ = 0;
  std::vector<char> error_, report_;
  std::string last_report_;
  std::thread thread_;
};

class Card {
 public:
  void allocate_banks(const std::vector<uint64_t> &bank_bytes);
  // Loads a program; throws std::runtime_error with the reason.
  void load(const std::string &xml_path, const std::string &library_path);

  bool add_buffer(uint64_t address, uint64_t bytes, bool is_for_user);
  void remove_buffer(uint64_t address) { buffers_.remove(address); }
  Memory &memory();
  Unit *unit_at(uint64_t address);

 private:
  Memory memory_;
  bool has_memory_ = false;
  Buffers buffers_;
  std::vector<std::unique_ptr<Unit>> units_;
  void *library_ = nullptr;
};

}  // namespace emulated_card
