// SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
// SPDX-License-Identifier: Apache-2.0
//
// A writer for the rows of --json and a strict reader for safetensors headers.

#ifndef PERF_JSON_H_
#define PERF_JSON_H_

#include <stdint.h>

#include <string>
#include <utility>
#include <vector>

namespace perf {

// Builds one JSON text. Numbers that are not finite are written as null.
class JsonWriter {
 public:
  JsonWriter& beginObject() { return open('{'); }
  JsonWriter& endObject() { return close('}'); }
  JsonWriter& beginArray() { return open('['); }
  JsonWriter& endArray() { return close(']'); }
  JsonWriter& key(const std::string& name);
  JsonWriter& value(const std::string& v);
  JsonWriter& value(const char* v) { return value(std::string(v)); }
  JsonWriter& value(double v);
  JsonWriter& value(bool v);
  JsonWriter& null();
  template <typename Int>
  JsonWriter& integer(Int v) {
    return raw(std::to_string(v));
  }
  const std::string& text() const { return text_; }

 private:
  JsonWriter& open(char c);
  JsonWriter& close(char c);
  JsonWriter& raw(const std::string& s);
  void separate();

  std::string text_;
  bool first_ = true;     // nothing written yet in the innermost container
  bool afterKey_ = false;
};

struct JsonValue {
  enum Kind { kNull, kBool, kInteger, kNumber, kString, kArray, kObject } kind = kNull;
  bool boolean = false;
  uint64_t integer = 0;  // kInteger: a number without sign, fraction and exponent that fits
  std::string string;
  std::vector<JsonValue> items;
  std::vector<std::pair<std::string, JsonValue>> members;

  // The member's value, or null.
  const JsonValue* find(const std::string& name) const;
};

// Reads one JSON value and nothing behind it but white space. Throws Error with the byte offset for anything RFC 8259
// forbids, for repeated member names and for nesting deeper than 32.
JsonValue parseJson(const std::string& text);

// Writes `text` to `path`, through a file beside it that is renamed, so that `path` holds all or is left as it was.
// Throws Error.
void writeFileAtomically(const std::string& path, const std::string& text);

}  // namespace perf

#endif  // PERF_JSON_H_
