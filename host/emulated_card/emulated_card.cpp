// An emulated accelerator card behind the sw_emu driver of the Xilinx Runtime (XRT).
//
// XRT starts this program as "genericpciemodel" and asks it, one request at a time, to
// load a program, to allocate and copy buffers, and to read and write the registers of
// compute units:
//
//      host process                         this program
//      OpenCL -> XRT -> sw_emu driver <--socket--> serve -> card memory  <- unit 1
//                                                        -> register maps <- unit 2 ...
//
// The "bitstream" is a shared library; launch.h says what it exports.
#include <unistd.h>

#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include "card.hpp"
#include "report.hpp"
#include "timing.hpp"
#include "wire.hpp"

namespace emulated_card {
namespace {

enum Call : unsigned {
  kClose = 1,
  kLoadBitstream = 3,
  kAllocDeviceBuffer = 4,
  kFreeDeviceBuffer = 5,
  kCopyBufferHost2Device = 6,
  kCopyBufferDevice2Host = 7,
  kWriteAddrKernelCtrl = 9,
  kReadAddrKernelCtrl = 11,
};

constexpr unsigned kAnswer = 1;  // first field of every answer
constexpr unsigned kAnswerData = 2;
constexpr uint64_t kRegisterLimit = 1 << 20;

void answer_number(Connection &connection, uint64_t value) {
  std::string fields;
  put_number(fields, kAnswer, value);
  connection.answer(fields);
}

// Numbers of a message whose fields are all numbers, by field.
struct Numbers {
  explicit Numbers(Message &message) {
    for (Field field; message.next(field);) {
      if (field.number < kCount && !field.has_payload) values[field.number] = field.value;
    }
  }
  uint64_t operator[](unsigned number) const { return values[number]; }

  static constexpr unsigned kCount = 8;
  uint64_t values[kCount] = {};
};

void close(Connection &connection, Message &message) {
  const bool is_last = Numbers(message)[3];
  answer_number(connection, true);
  if (is_last) leave();
}

void load_bitstream(Card &card, Connection &connection, Message &message) {
  std::string xml_path, library_path;
  std::vector<uint64_t> bank_bytes;
  for (Field field; message.next(field);) {
    if (!field.has_payload) continue;
    if (field.number == 1) xml_path = message.payload_text();
    if (field.number == 2) library_path = message.payload_text();
    if (field.number == 8) {
      Message bank = message.payload_message();
      bank_bytes.push_back(Numbers(bank)[7]);
    }
  }
  card.allocate_banks(bank_bytes);
  bool is_loaded = true;
  if (!library_path.empty()) {  // empty names mean "only allocate"
    try {
      card.load(xml_path, library_path);
    } catch (const std::runtime_error &problem) {
      report_error(nullptr, std::string("the xclbin cannot be loaded: ") + problem.what() + ".");
      is_loaded = false;
    }
  }
  answer_number(connection, is_loaded);
}

void alloc_device_buffer(Card &card, Connection &connection, Message &message) {
  const Numbers numbers(message);
  std::string fields;
  put_number(fields, kAnswer, card.add_buffer(numbers[1], numbers[2], numbers[3] == 0));
  put_payload_header(fields, kAnswerData, 0);
  connection.answer(fields);
}

void free_device_buffer(Card &card, Connection &connection, Message &message) {
  card.remove_buffer(Numbers(message)[1]);
  answer_number(connection, true);
}

void copy_to_card(Card &card, Connection &connection, Message &message) {
  uint64_t address = 0, bytes = 0;
  for (Field field; message.next(field);) {
    if (field.number == 3) address = field.value;
    if (field.number == 4 && field.has_payload) {
      bytes = field.value;
      message.read_payload(card.memory().at(address, bytes));
    }
  }
  answer_number(connection, bytes);
}

void copy_to_host(Card &card, Connection &connection, Message &message) {
  const Numbers numbers(message);
  const uint64_t bytes = numbers[5];
  std::string fields;
  put_number(fields, kAnswer, bytes);
  put_payload_header(fields, kAnswerData, bytes);
  connection.answer(fields, card.memory().at(numbers[4], bytes), bytes);
}

void write_registers(Card &card, Connection &connection, Message &message) {
  uint64_t address = 0;
  for (Field field; message.next(field);) {
    if (field.number == 2) address = field.value;
    if (field.number == 4 && field.has_payload) {
      const std::string bytes = message.payload_text();
      if (Unit *unit = card.unit_at(address)) unit->write(address, bytes);
    }
  }
  answer_number(connection, true);
}

void read_registers(Card &card, Connection &connection, Message &message) {
  const Numbers numbers(message);
  if (numbers[3] > kRegisterLimit) die("the host reads more than 1 MiB of registers at once.");
  std::string bytes(numbers[3], '\0');
  if (Unit *unit = card.unit_at(numbers[2])) unit->read(numbers[2], bytes);
  std::string fields;
  put_number(fields, kAnswer, true);
  put_payload_header(fields, kAnswerData, bytes.size());
  connection.answer(fields, bytes.data(), bytes.size());
}

void answer_true(Connection &connection, Message &message) {
  Numbers read_it_all(message);
  answer_number(connection, true);
}

[[noreturn]] void serve() {
  Connection connection;
  // Never destroyed: leave() ends the process while compute units may still run.
  Card &card = *new Card;
  for (;;) {
    unsigned call = 0;
    Message message = read_request(connection, call);
    switch (call) {
      case kClose:
        close(connection, message);
        break;
      case kLoadBitstream:
        load_bitstream(card, connection, message);
        break;
      case kAllocDeviceBuffer:
        alloc_device_buffer(card, connection, message);
        break;
      case kFreeDeviceBuffer:
        free_device_buffer(card, connection, message);
        break;
      case kCopyBufferHost2Device:
        copy_to_card(card, connection, message);
        break;
      case kCopyBufferDevice2Host:
        copy_to_host(card, connection, message);
        break;
      case kWriteAddrKernelCtrl:
        write_registers(card, connection, message);
        break;
      case kReadAddrKernelCtrl:
        read_registers(card, connection, message);
        break;
      default:
        answer_true(connection, message);
    }
  }
}

}  // namespace
}  // namespace emulated_card

int main() {
  // What a kernel prints is no output of the user's; a crash must not swallow it.
  dup2(STDERR_FILENO, STDOUT_FILENO);
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  emulated_card::open_report();
  emulated_card::timing();
  emulated_card::serve();
}
