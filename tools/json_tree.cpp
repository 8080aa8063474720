#include "tools/json_tree.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <sparsekiln/error.h>
#include <sparsekiln/printable.h>
#include <nlohmann/json.hpp>

namespace sparsekiln::tools {
namespace {

constexpr std::size_t kDeepest = 64;

/// Reads text and says through `at` how far the parser has come: it reports no places of its own.
class Cursor {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  Cursor(const char* here, std::size_t* at) : here_(here), at_(at) {}
  reference operator*() const { return *here_; }
  Cursor& operator++() {
    ++here_;
    if (at_ != nullptr) ++*at_;
    return *this;
  }
  Cursor operator++(int) {
    Cursor before = *this;
    ++*this;
    return before;
  }
  friend bool operator==(const Cursor& a, const Cursor& b) { return a.here_ == b.here_; }

 private:
  const char* here_;
  std::size_t* at_;
};

/// Makes the tree of the parser's events.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  Builder(std::string_view text, const std::filesystem::path& file) : text_(text), file_(file) {}

  std::size_t at = 0;  ///< bytes that the parser has taken
  JsonNode root;

  bool null() override { return add(JsonNode::Kind::null, "null"); }
  bool boolean(bool value) override {
    JsonNode& node = place(JsonNode::Kind::boolean);
    node.truth = value;
    return true;
  }
  bool number_integer(number_integer_t value) override {
    return add(JsonNode::Kind::number, std::to_string(value));
  }
  bool number_unsigned(number_unsigned_t value) override {
    return add(JsonNode::Kind::number, std::to_string(value));
  }
  bool number_float(number_float_t, const string_t& written) override {
    return add(JsonNode::Kind::number, written);
  }
  bool string(string_t& value) override { return add(JsonNode::Kind::text, value); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(JsonNode::Kind::object); }
  bool start_array(std::size_t) override { return open(JsonNode::Kind::list); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    auto& [object, members] = open_.back();
    const auto [twice, fresh] = members.try_emplace(name, object->items.size());
    if (!fresh)
      fail(fmt::format("'{}' is there twice, first in line {}", printable(name),
                       object->items[twice->second].line));
    object->items.emplace_back().name = name;
    return true;
  }
  bool parse_error(std::size_t position, const std::string& last,
                   const nlohmann::detail::exception&) override {
    at = position;
    fail(last.empty() || at > text_.size() ? "the JSON ends too early"
                                           : fmt::format("this is not JSON, at '{}'", printable(last)));
  }

 private:
  struct Open {
    JsonNode* node;
    std::map<std::string, std::size_t> members;  ///< of an object: which of the node's items has a name
  };

  [[nodiscard]] std::size_t line() const {
    const std::size_t before = std::min(at == 0 ? 0 : at - 1, text_.size());
    // From the last value on, or from the beginning where an error comes before it.
    if (before < counted_to_) counted_to_ = counted_ = 0;
    const std::string_view rest = text_.substr(counted_to_, before - counted_to_);
    counted_ += static_cast<std::size_t>(std::count(rest.begin(), rest.end(), '\n'));
    counted_to_ = before;
    return 1 + counted_;
  }
  [[noreturn]] void fail(const std::string& wrong) const {
    throw Error(ErrorKind::invalid_argument,
                fmt::format("{}:{}: {}", printable(file_.string()), line(), wrong));
  }
  /// Where the next value goes.
  JsonNode& place(JsonNode::Kind kind) {
    JsonNode* node = &root;
    if (!open_.empty() && open_.back().node->kind == JsonNode::Kind::object) {
      node = &open_.back().node->items.back();
    } else if (!open_.empty()) {
      node = &open_.back().node->items.emplace_back();
    }
    node->kind = kind;
    node->line = line();
    return *node;
  }
  bool add(JsonNode::Kind kind, std::string text) {
    place(kind).text = std::move(text);
    return true;
  }
  /// Nodes that are open do not move: only the innermost one grows.
  bool open(JsonNode::Kind kind) {
    if (open_.size() == kDeepest) fail(fmt::format("more than {} lists and objects in each other", kDeepest));
    open_.push_back({&place(kind), {}});
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  std::string_view text_;
  mutable std::size_t counted_to_ = 0;
  mutable std::size_t counted_ = 0;  ///< line ends before that
  const std::filesystem::path& file_;
  std::vector<Open> open_;
};

}  // namespace

std::string_view JsonNode::kind_name() const {
  static constexpr std::string_view kNames[] = {"null",   "true or false", "a number",
                                                "a text", "a list",        "an object"};
  static_assert(std::size(kNames) == static_cast<std::size_t>(Kind::object) + 1);
  return kNames[static_cast<std::size_t>(kind)];
}

JsonNode parse_json(std::string_view text, const std::filesystem::path& file) {
  Builder builder(text, file);
  const Cursor begin(text.data(), &builder.at);
  const Cursor end(text.data() + text.size(), nullptr);
  static_cast<void>(nlohmann::json::sax_parse(begin, end, &builder));
  return std::move(builder.root);
}

}  // namespace sparsekiln::tools
