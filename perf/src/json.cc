// SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
// SPDX-License-Identifier: Apache-2.0

#include "json.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>

#include "util.h"

namespace perf {

void JsonWriter::separate() {
  if (!afterKey_ && !first_) text_ += ", ";
  first_ = false;
  afterKey_ = false;
}

JsonWriter& JsonWriter::open(char c) {
  separate();
  text_ += c;
  first_ = true;
  return *this;
}

JsonWriter& JsonWriter::close(char c) {
  text_ += c;
  first_ = false;
  return *this;
}

JsonWriter& JsonWriter::raw(const std::string& s) {
  separate();
  text_ += s;
  return *this;
}

JsonWriter& JsonWriter::key(const std::string& name) {
  value(name);
  text_ += ": ";
  afterKey_ = true;
  return *this;
}

// Bytes above 0x7e are written as \u00XX: the output is ASCII whatever an environment variable holds.
JsonWriter& JsonWriter::value(const std::string& v) {
  std::string out = "\"";
  for (unsigned char c : v) {
    if (c == '"' || c == '\\')
      out += '\\', out += char(c);
    else if (c < 0x20 || c > 0x7e)
      out += format("\\u%04x", c);
    else
      out += char(c);
  }
  return raw(out + '"');
}

JsonWriter& JsonWriter::value(double v) { return isfinite(v) ? raw(format("%.17g", v)) : null(); }
JsonWriter& JsonWriter::value(bool v) { return raw(v ? "true" : "false"); }
JsonWriter& JsonWriter::null() { return raw("null"); }

const JsonValue* JsonValue::find(const std::string& name) const {
  for (auto& m : members) {
    if (m.first == name) return &m.second;
  }
  return nullptr;
}

namespace {

class Parser {
 public:
  explicit Parser(const std::string& text) : s_(text) {}

  JsonValue document() {
    JsonValue v = value(0);
    space();
    if (at_ != s_.size()) fail("text behind the value");
    return v;
  }

 private:
  [[noreturn]] void fail(const char* what) { throw Error(format("not JSON: %s at byte %zu", what, at_)); }
  int peek() const { return at_ < s_.size() ? (unsigned char)s_[at_] : -1; }
  bool take(char c) {
    if (peek() != c) return false;
    at_++;
    return true;
  }
  void space() {
    while (peek() == ' ' || peek() == '\t' || peek() == '\n' || peek() == '\r') at_++;
  }
  void word(const char* w) {
    if (s_.compare(at_, strlen(w), w) != 0) fail("unknown word");
    at_ += strlen(w);
  }

  JsonValue value(int depth) {
    if (depth > 32) fail("nested too deep");
    space();
    JsonValue v;
    switch (peek()) {
      case '{': object(&v, depth); break;
      case '[': array(&v, depth); break;
      case '"':
        v.kind = JsonValue::kString;
        v.string = string();
        break;
      case 't':
        word("true");
        v.kind = JsonValue::kBool;
        v.boolean = true;
        break;
      case 'f':
        word("false");
        v.kind = JsonValue::kBool;
        break;
      case 'n': word("null"); break;
      default: number(&v);
    }
    return v;
  }

  void object(JsonValue* v, int depth) {
    v->kind = JsonValue::kObject;
    at_++;
    space();
    if (take('}')) return;
    do {
      space();
      if (peek() != '"') fail("expected a member name");
      std::string name = string();
      space();
      if (!take(':')) fail("expected ':'");
      v->members.emplace_back(std::move(name), value(depth + 1));
      space();
    } while (take(','));
    if (!take('}')) fail("expected ',' or '}'");
  }

  void array(JsonValue* v, int depth) {
    v->kind = JsonValue::kArray;
    at_++;
    space();
    if (take(']')) return;
    do {
      v->items.push_back(value(depth + 1));
      space();
    } while (take(','));
    if (!take(']')) fail("expected ',' or ']'");
  }

  unsigned hex4() {
    unsigned u = 0;
    for (int i = 0; i < 4; i++) {
      int c = peek();
      unsigned digit = c >= '0' && c <= '9'   ? unsigned(c - '0')
                       : c >= 'a' && c <= 'f' ? unsigned(c - 'a' + 10)
                       : c >= 'A' && c <= 'F' ? unsigned(c - 'A' + 10)
                                              : 16;
      if (digit > 15) fail("bad \\u escape");
      u = u * 16 + digit;
      at_++;
    }
    return u;
  }

  std::string string() {
    std::string out;
    at_++;
    for (;;) {
      int c = peek();
      if (c < 0) fail("unterminated string");
      if (c < 0x20) fail("control character in a string");
      at_++;
      if (c == '"') return out;
      if (c != '\\') {
        out += char(c);
        continue;
      }
      c = peek();
      at_++;
      switch (c) {
        case '"':
        case '\\':
        case '/': out += char(c); break;
        case 'b': out += '\b'; break;
        case 'f': out += '\f'; break;
        case 'n': out += '\n'; break;
        case 'r': out += '\r'; break;
        case 't': out += '\t'; break;
        case 'u': utf8(&out); break;
        default: at_--; fail("bad escape");
      }
    }
  }

  void utf8(std::string* out) {
    unsigned u = hex4();
    if (u >= 0xd800 && u < 0xdc00) {
      if (!take('\\') || !take('u')) fail("lone surrogate");
      unsigned low = hex4();
      if (low < 0xdc00 || low > 0xdfff) fail("lone surrogate");
      u = 0x10000 + ((u - 0xd800) << 10) + (low - 0xdc00);
    } else if (u >= 0xdc00 && u <= 0xdfff) {
      fail("lone surrogate");
    }
    if (u < 0x80) {
      *out += char(u);
    } else if (u < 0x800) {
      *out += char(0xc0 | u >> 6);
      *out += char(0x80 | (u & 63));
    } else if (u < 0x10000) {
      *out += char(0xe0 | u >> 12);
      *out += char(0x80 | (u >> 6 & 63));
      *out += char(0x80 | (u & 63));
    } else {
      *out += char(0xf0 | u >> 18);
      *out += char(0x80 | (u >> 12 & 63));
      *out += char(0x80 | (u >> 6 & 63));
      *out += char(0x80 | (u & 63));
    }
  }

  void digits() {
    if (peek() < '0' || peek() > '9') fail("expected a value");
    while (peek() >= '0' && peek() <= '9') at_++;
  }

  void number(JsonValue* v) {
    size_t begin = at_;
    v->kind = JsonValue::kInteger;
    if (take('-')) v->kind = JsonValue::kNumber;
    if (peek() == '0')
      at_++;
    else
      digits();
    if (take('.')) {
      v->kind = JsonValue::kNumber;
      digits();
    }
    if (peek() == 'e' || peek() == 'E') {
      v->kind = JsonValue::kNumber;
      at_++;
      if (peek() == '+' || peek() == '-') at_++;
      digits();
    }
    for (size_t i = begin; v->kind == JsonValue::kInteger && i < at_; i++) {
      uint64_t d = uint64_t(s_[i] - '0');
      if (v->integer > (UINT64_MAX - d) / 10)
        v->kind = JsonValue::kNumber;
      else
        v->integer = v->integer * 10 + d;
    }
  }

  const std::string& s_;
  size_t at_ = 0;
};

void refuseRepeatedNames(const JsonValue& v) {
  std::vector<const std::string*> names;
  for (auto& m : v.members) names.push_back(&m.first);
  std::sort(names.begin(), names.end(), [](auto* a, auto* b) { return *a < *b; });
  for (size_t i = 1; i < names.size(); i++) {
    if (*names[i] == *names[i - 1]) throw Error(format("not JSON: member '%s' twice in one object", names[i]->c_str()));
  }
  for (auto& m : v.members) refuseRepeatedNames(m.second);
  for (auto& item : v.items) refuseRepeatedNames(item);
}

}  // namespace

JsonValue parseJson(const std::string& text) {
  JsonValue v = Parser(text).document();
  refuseRepeatedNames(v);
  return v;
}

void writeFileAtomically(const std::string& path, const std::string& text) {
  std::string part = path + format(".part.%d", int(getpid()));
  int fd = open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) throw Error(format("cannot write %s: %s", path.c_str(), strerror(errno)));
  size_t done = 0;
  int err = 0;
  while (done < text.size() && err == 0) {
    ssize_t n = write(fd, text.data() + done, text.size() - done);
    if (n > 0)
      done += size_t(n);
    else if (n == 0 || errno != EINTR)
      err = n == 0 ? EIO : errno;
  }
  if (err == 0 && fsync(fd) != 0 && errno != EINVAL) err = errno;
  if (close(fd) != 0 && err == 0) err = errno;
  if (err == 0 && rename(part.c_str(), path.c_str()) != 0) err = errno;
  if (err != 0) {
    unlink(part.c_str());
    throw Error(format("cannot write %s: %s", path.c_str(), strerror(err)));
  }
}

}  // namespace perf
