// What the clock saw in a launch, as the JSON text that goes back with the result.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "fibers.hpp"

namespace spmv {
namespace emulation {

struct ProcessReport {
  std::string name;
  cycle_t active = 0;  // from its start to its last result
  cycle_t data = 0, room = 0, memory = 0, reuse = 0, refill = 0, hazards = 0;
};

struct StreamReport {
  std::string name, writer, reader;
  unsigned depth = 0, most = 0;
  cycle_t tokens = 0, data = 0, room = 0;
};

// The launch that a thread runs: its memory ports, its time, and the reports of its regions. A
// region that runs several times is added up.
class Launch final : public Timekeeper {
 public:
  explicit Launch(spmv_fpga_launch& launch) : launch_(launch) {
    for (unsigned i = 0; i < launch.num_arguments; ++i)
      ports_.emplace_back(launch.buffers[i], launch.memory);
  }

  MemoryPort* port(const void* begin) {
    for (MemoryPort& port : ports_) {
      if (port.buffer().begin == begin) return &port;
    }
    return nullptr;
  }

  void note(const std::string& region, const std::vector<std::unique_ptr<Fiber>>& fibers,
            const std::vector<const Channel*>& channels) override {
    for (MemoryPort& port : ports_) port.release();
    if (!kIsTimed) return;
    const auto sizes = std::make_pair(fibers.size(), channels.size());
    auto known = std::find_if(regions_.begin(), regions_.end(), [&](const Region& r) {
      return r.name == region && r.processes.size() == sizes.first &&
             r.streams.size() == sizes.second;
    });
    if (known == regions_.end()) {
      regions_.push_back({region, std::vector<ProcessReport>(sizes.first),
                          std::vector<StreamReport>(sizes.second)});
      known = regions_.end() - 1;
    }
    for (std::size_t i = 0; i < fibers.size(); ++i)
      add(known->processes[i], *fibers[i], label(*fibers[i], fibers), channels);
    for (std::size_t i = 0; i < channels.size(); ++i) add(known->streams[i], *channels[i], fibers);
  }

  void write_error(const char* text) {
    std::strncpy(launch_.error, text, launch_.error_capacity - 1);
    launch_.error[launch_.error_capacity - 1] = '\0';
  }

  // Leaves the report, where the card has told how fast its memory is and all of it fits.
  void write_report() const {
    if (!kIsTimed || !launch_.memory) return;
    const std::string text = json();
    if (text.size() < launch_.report_capacity)
      std::memcpy(launch_.report, text.c_str(), text.size() + 1);
  }

 private:
  struct Region {
    std::string name;
    std::vector<ProcessReport> processes;
    std::vector<StreamReport> streams;
  };

  // A function that two processes run is told apart by its first argument.
  static std::string label(const Fiber& fiber, const std::vector<std::unique_ptr<Fiber>>& fibers) {
    const auto has_its_name = [&](const auto& other) {
      return std::strcmp(other->name, fiber.name) == 0;
    };
    if (std::count_if(fibers.begin(), fibers.end(), has_its_name) < 2) return fiber.name;
    const std::string arguments = fiber.arguments;
    return std::string(fiber.name) + "(" + arguments.substr(0, arguments.find(',')) + ")";
  }

  static void add(ProcessReport& report, const Fiber& fiber, const std::string& name,
                  const std::vector<const Channel*>& channels) {
    report.name = name;
    report.active += fiber.clock.ends - fiber.clock.began;
    report.memory += fiber.clock.waited_for_memory;
    report.reuse += fiber.clock.waited_for_reuse;
    report.refill += fiber.clock.refilled;
    report.hazards += fiber.clock.num_hazards;
    for (const Channel* channel : channels) {
      if (channel->reader() == &fiber) report.data += channel->clock().waited_for_data;
      if (channel->writer() == &fiber) report.room += channel->clock().waited_for_room;
    }
  }

  static void add(StreamReport& report, const Channel& channel,
                  const std::vector<std::unique_ptr<Fiber>>& fibers) {
    const StreamClock& clock = channel.clock();
    report.name = channel.name();
    report.depth = channel.depth();
    report.most = std::max(report.most, clock.most);
    report.tokens += channel.num_tokens();
    report.data += clock.waited_for_data;
    report.room += clock.waited_for_room;
    if (channel.writer()) report.writer = label(*channel.writer(), fibers);
    if (channel.reader()) report.reader = label(*channel.reader(), fibers);
  }

  // No channel can bring more than its share, whatever the processes believe.
  cycle_t cycles() const {
    double longest = 0.0;
    for (const MemoryPort& port : ports_) {
      double of_bank = 0.0;
      for (const MemoryPort& other : ports_) {
        if (other.buffer().bank == port.buffer().bank) of_bank += other.cycles_of_bank();
      }
      longest = std::max(longest, of_bank);
    }
    return std::max(now, static_cast<cycle_t>(std::ceil(longest)));
  }

  std::string json() const {
    std::string processes, streams, ports;
    for (const Region& region : regions_) {
      for (const ProcessReport& p : region.processes) {
        append(processes,
               {{"active", p.active},
                {"data", p.data},
                {"room", p.room},
                {"memory", p.memory},
                {"reuse", p.reuse},
                {"refill", p.refill},
                {"hazards", p.hazards}},
               {{"name", p.name}});
      }
      for (const StreamReport& s : region.streams) {
        append(streams,
               {{"depth", s.depth},
                {"most", s.most},
                {"tokens", s.tokens},
                {"data", s.data},
                {"room", s.room}},
               {{"name", s.name}, {"writer", s.writer}, {"reader", s.reader}});
      }
    }
    for (const MemoryPort& port : ports_) {
      if (!port.buffer().begin) continue;
      append(ports,
             {{"bank", port.buffer().bank},
              {"sharers", port.buffer().sharers},
              {"bytes", port.num_bytes()},
              {"accesses", port.num_words()},
              {"bursts", port.num_bursts()},
              {"waited", port.waited()}},
             {{"name", port.buffer().name}});
    }
    return "{\"cycles\": " + std::to_string(cycles()) + ", \"processes\": [" + processes +
           "], \"streams\": [" + streams + "], \"ports\": [" + ports + "]}";
  }

  using Numbers = std::vector<std::pair<const char*, std::uint64_t>>;
  using Texts = std::vector<std::pair<const char*, std::string>>;

  // Names are words of the source; an argument may be a text in quotes.
  static std::string quoted(const std::string& text) {
    std::string out = "\"";
    for (const char c : text) {
      if (c == '"' || c == '\\') out += '\\';
      out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
    return out + '"';
  }

  static void append(std::string& list, const Numbers& numbers, const Texts& texts) {
    std::string object;
    for (const auto& [key, text] : texts)
      object += (object.empty() ? "" : ", ") + quoted(key) + ": " + quoted(text);
    for (const auto& [key, number] : numbers)
      object += ", \"" + std::string(key) + "\": " + std::to_string(number);
    list += (list.empty() ? "{" : ", {") + object + "}";
  }

  spmv_fpga_launch& launch_;
  std::vector<MemoryPort> ports_;
  std::vector<Region> regions_;
};

}  // namespace emulation
}  // namespace spmv
