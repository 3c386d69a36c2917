#include "metadata.hpp"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>

namespace emulated_card {
namespace {

// The little of XML that the metadata use: elements and quoted attributes.
struct Tag {
  std::string name;  // begins with "/" where an element ends
  bool is_empty = false;
  std::map<std::string, std::string> attributes;

  const std::string &text(const std::string &key) const {
    static const std::string nothing;
    const auto found = attributes.find(key);
    return found == attributes.end() ? nothing : found->second;
  }
  uint64_t number(const std::string &key) const {
    return std::strtoull(text(key).c_str(), nullptr, 0);
  }
};

class TagScanner {
 public:
  explicit TagScanner(std::string text) : text_(std::move(text)) {}

  bool next(Tag &tag) {
    for (;;) {
      at_ = text_.find('<', at_);
      if (at_ == std::string::npos) return false;
      if (text_.compare(at_, 4, "<!--") == 0) {
        pass("-->");
      } else if (text_.compare(at_, 9, "<![CDATA[") == 0) {
        pass("]]>");
      } else if (text_[at_ + 1] == '?' || text_[at_ + 1] == '!') {
        pass(">");
      } else {
        break;
      }
    }
    ++at_;
    tag = Tag();
    tag.name = word();
    for (;;) {
      at_ = text_.find_first_not_of(" \t\r\n", at_);
      if (at_ == std::string::npos) throw std::runtime_error("its XML breaks off");
      if (text_[at_] == '>') break;
      if (text_[at_] == '/') {
        tag.is_empty = true;
        ++at_;
        continue;
      }
      const std::string key = word();
      tag.attributes[key] = quoted_value();
    }
    ++at_;
    return true;
  }

 private:
  void pass(const char *end) {
    at_ = text_.find(end, at_);
    if (at_ == std::string::npos) throw std::runtime_error("its XML breaks off");
    ++at_;
  }
  std::string word() {
    size_t end = text_.find_first_of(" \t\r\n=>/", text_[at_] == '/' ? at_ + 1 : at_);
    if (end == std::string::npos || end == at_) throw std::runtime_error("its XML is broken");
    const std::string found = text_.substr(at_, end - at_);
    at_ = end;
    return found;
  }
  std::string quoted_value() {
    const size_t open = text_.find_first_not_of(" \t\r\n=", at_);
    if (open == std::string::npos || (text_[open] != '"' && text_[open] != '\'')) {
      throw std::runtime_error("its XML has an attribute without a value");
    }
    const size_t close = text_.find(text_[open], open + 1);
    if (close == std::string::npos) throw std::runtime_error("its XML breaks off");
    at_ = close + 1;
    return text_.substr(open + 1, close - open - 1);
  }

  std::string text_;
  size_t at_ = 0;
};

Argument read_argument(const Tag &tag) {
  Argument argument;
  argument.name = tag.text("name");
  argument.is_pointer = tag.number("addressQualifier") == 1;
  argument.id = tag.number("id");
  argument.offset = tag.number("offset");
  argument.bytes = tag.number("size");
  return argument;
}

}  // namespace

std::vector<KernelInfo> read_metadata(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("it cannot be opened");
  std::stringstream text;
  text << file.rdbuf();

  std::vector<KernelInfo> kernels;
  TagScanner scanner(text.str());
  Instance *instance = nullptr;
  for (Tag tag; scanner.next(tag);) {
    if (tag.name == "kernel") {
      kernels.push_back({tag.text("name"), {}, {}});
    } else if (kernels.empty()) {
      continue;
    } else if (tag.name == "arg") {
      kernels.back().arguments.push_back(read_argument(tag));
    } else if (tag.name == "instance") {
      kernels.back().instances.push_back({tag.text("name"), 0, 0});
      instance = tag.is_empty ? nullptr : &kernels.back().instances.back();
    } else if (tag.name == "/instance") {
      instance = nullptr;
    } else if (tag.name == "addrRemap" && instance) {
      instance->base = tag.number("base");
      instance->range = tag.number("range");
    }
  }
  for (KernelInfo &kernel : kernels) {
    std::sort(kernel.arguments.begin(), kernel.arguments.end(),
              [](const Argument &a, const Argument &b) { return a.id < b.id; });
  }
  return kernels;
}

}  // namespace emulated_card
