#include "wire.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "report.hpp"

namespace emulated_card {
namespace {

constexpr size_t kBufferBytes = 64 << 10;
constexpr uint64_t kTextLimit = 1 << 20;
constexpr int kSocketBytes = 4 << 20;
constexpr useconds_t kRetryUs = 1000;
constexpr int kRetries = 30000;

constexpr char kLengthTag = 0x09;
constexpr char kCallTag = 0x15;
constexpr size_t kLengthHeaderBytes = 9;
constexpr size_t kRequestHeaderBytes = 14;

enum WireType { kVarint = 0, kFixed64 = 1, kPayload = 2, kFixed32 = 5 };

// XRT's own rule for the name of the socket.
std::string socket_path() {
  const char *user = std::getenv("USER");
  const char *id = std::getenv("EMULATION_SOCKETID");
  if (!user) return "/tmp/xcl_sock";
  return std::string("/tmp/") + user + "/" + (id ? id : "xcl_sock");
}

uint64_t little_endian(const char *bytes, size_t count) {
  uint64_t value = 0;
  std::memcpy(&value, bytes, count);
  return value;
}

void put_varint(std::string &out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

}  // namespace

Connection::Connection() : buffer_(kBufferBytes) {
  const std::string path = socket_path();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    die("the socket's path " + path + " is too long; use a shorter folder.");
  }
  std::memcpy(address.sun_path, path.c_str(), path.size());
  const pid_t host = getppid();
  for (int attempt = 0; attempt < kRetries && getppid() == host; ++attempt) {
    socket_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (socket_ < 0) die(std::string("no socket can be made: ") + std::strerror(errno));
    if (connect(socket_, reinterpret_cast<sockaddr *>(&address), sizeof address) == 0) {
      setsockopt(socket_, SOL_SOCKET, SO_SNDBUF, &kSocketBytes, sizeof kSocketBytes);
      return;
    }
    close(socket_);
    usleep(kRetryUs);
  }
  die("the host does not listen on " + path + ".");
}

size_t Connection::receive(void *to, size_t bytes) {
  for (;;) {
    const ssize_t got = recv(socket_, to, bytes, 0);
    if (got > 0) return static_cast<size_t>(got);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EFAULT) die("a copy leaves the card's memory.");
    leave();
  }
}

void Connection::read(void *to, uint64_t bytes) {
  char *at = static_cast<char *>(to);
  while (bytes > 0) {
    if (begin_ == end_ && bytes < buffer_.size()) {
      begin_ = 0;
      end_ = receive(buffer_.data(), buffer_.size());
    }
    size_t taken = static_cast<size_t>(std::min<uint64_t>(bytes, end_ - begin_));
    if (taken > 0) {
      std::memcpy(at, buffer_.data() + begin_, taken);
      begin_ += taken;
    } else {
      taken = receive(at, bytes);  // a long rest goes past the buffer
    }
    at += taken;
    bytes -= taken;
  }
}

void Connection::skip(uint64_t bytes) {
  while (bytes > 0) {
    if (begin_ == end_) {
      begin_ = 0;
      end_ = receive(buffer_.data(), buffer_.size());
    }
    const uint64_t taken = std::min<uint64_t>(bytes, end_ - begin_);
    begin_ += taken;
    bytes -= taken;
  }
}

void Connection::answer(const std::string &fields, const void *body, uint64_t bytes) {
  std::string head(1, kLengthTag);
  const uint64_t length = fields.size() + bytes;
  head.append(reinterpret_cast<const char *>(&length), sizeof length);
  head += fields;
  iovec parts[2] = {{head.data(), head.size()}, {const_cast<void *>(body), bytes}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = bytes > 0 ? 2 : 1;
  while (message.msg_iovlen > 0) {
    const ssize_t sent = sendmsg(socket_, &message, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) leave();
    size_t left = static_cast<size_t>(sent);
    while (message.msg_iovlen > 0 && left >= message.msg_iov->iov_len) {
      left -= message.msg_iov->iov_len;
      ++message.msg_iov;
      --message.msg_iovlen;
    }
    if (message.msg_iovlen > 0) {
      message.msg_iov->iov_base = static_cast<char *>(message.msg_iov->iov_base) + left;
      message.msg_iov->iov_len -= left;
    }
  }
}

void Message::spend(uint64_t bytes) {
  if (bytes > left_) die("the host sent a message whose fields are longer than itself.");
  left_ -= bytes;
}

uint64_t Message::read_varint() {
  uint64_t value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    unsigned char byte;
    spend(1);
    connection_.read(&byte, 1);
    value |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if (!(byte & 0x80)) return value;
  }
  die("the host sent a number of more than 64 bits.");
}

bool Message::next(Field &field) {
  connection_.skip(payload_);
  spend(payload_);
  payload_ = 0;
  if (left_ == 0) return false;
  const uint64_t key = read_varint();
  field = {static_cast<unsigned>(key >> 3), (key & 7) == kPayload, 0};
  switch (key & 7) {
    case kVarint:
      field.value = read_varint();
      break;
    case kPayload:
      field.value = payload_ = read_varint();
      if (payload_ > left_) spend(payload_);
      break;
    case kFixed64:
    case kFixed32: {
      const uint64_t bytes = (key & 7) == kFixed64 ? 8 : 4;
      spend(bytes);
      connection_.read(&field.value, bytes);
      break;
    }
    default:
      die("the host sent a message with an unknown kind of field.");
  }
  return true;
}

void Message::read_payload(void *to) {
  connection_.read(to, payload_);
  spend(payload_);
  payload_ = 0;
}

std::string Message::payload_text() {
  if (payload_ > kTextLimit) die("the host sent a text of more than 1 MiB.");
  std::string text(payload_, '\0');
  read_payload(text.data());
  return text;
}

Message Message::payload_message() {
  Message inner(connection_, payload_);
  spend(payload_);
  payload_ = 0;
  return inner;
}

Message read_request(Connection &connection, unsigned &call) {
  char header[kRequestHeaderBytes];
  connection.read(header, sizeof header);
  if (header[0] != kLengthTag || header[kLengthHeaderBytes] != kCallTag) {
    die("the host sent a request with an unknown header.");
  }
  call = static_cast<unsigned>(little_endian(header + kLengthHeaderBytes + 1, 4));
  return Message(connection, little_endian(header + 1, 8));
}

void put_number(std::string &fields, unsigned number, uint64_t value) {
  put_varint(fields, number << 3 | kVarint);
  put_varint(fields, value);
}

void put_payload_header(std::string &fields, unsigned number, uint64_t bytes) {
  put_varint(fields, number << 3 | kPayload);
  put_varint(fields, bytes);
}

}  // namespace emulated_card
