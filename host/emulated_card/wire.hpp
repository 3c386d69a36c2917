// The talk with XRT: one request, one answer, over a local stream socket.
//
//   request   0x09, 8 bytes length, 0x15, 4 bytes call number, message
//   answer    0x09, 8 bytes length, message          (all little-endian)
//
// A message is in protocol-buffers encoding. XRT's numbers are all varints and its
// fields ascend, so a message is read field by field from the socket and the bytes of a
// copy go straight to the card's memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace emulated_card {

class Connection {
 public:
  Connection();  // connects to the host; it may not be listening yet
  void read(void *to, uint64_t bytes);
  void skip(uint64_t bytes);
  // Sends the answer `fields` followed by `body`.
  void answer(const std::string &fields, const void *body = nullptr, uint64_t bytes = 0);

 private:
  size_t receive(void *to, size_t bytes);

  int socket_;
  std::vector<char> buffer_;
  size_t begin_ = 0, end_ = 0;  // unread part of buffer_
};

struct Field {
  unsigned number = 0;
  bool has_payload = false;
  uint64_t value = 0;  // the number, or the payload's length in bytes
};

class Message {
 public:
  Message(Connection &connection, uint64_t bytes) : connection_(connection), left_(bytes) {}
  bool next(Field &field);  // skips what was not read of the last field's payload
  void read_payload(void *to);
  std::string payload_text();
  Message payload_message();

 private:
  uint64_t read_varint();
  void spend(uint64_t bytes);

  Connection &connection_;
  uint64_t left_;         // bytes of the message that are still unread, payload included
  uint64_t payload_ = 0;  // unread bytes of the present field's payload
};

// Reads a request's header; the message follows.
Message read_request(Connection &connection, unsigned &call);

void put_number(std::string &fields, unsigned number, uint64_t value);
void put_payload_header(std::string &fields, unsigned number, uint64_t bytes);

}  // namespace emulated_card
