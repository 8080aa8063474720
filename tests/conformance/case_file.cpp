#include "tests/conformance/case_file.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

#include <fmt/format.h>

#include <sparsekiln/error.h>

namespace sparsekiln::conformance {
namespace {

std::vector<std::string> words_of(std::string_view text) {
  std::istringstream stream{std::string(text)};
  return {std::istream_iterator<std::string>(stream), {}};
}

[[noreturn]] void refuse(const std::string& why) { throw Error(ErrorKind::invalid_argument, why); }

int number(std::string_view text) {
  int value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc{} || end != text.data() + text.size())
    refuse(fmt::format("'{}' is no number", text));
  return value;
}

std::array<int, 3> dimensions(std::string_view text) {
  std::array<int, 3> sizes = {1, 1, 1};
  const std::vector<std::string> words = words_of(text);
  if (words.empty() || words.size() > sizes.size())
    refuse(fmt::format("'{}' are not up to three sizes", text));
  std::transform(words.begin(), words.end(), sizes.begin(), number);
  return sizes;
}

void place(std::vector<Column>& columns, Column column) {
  int offset = columns.empty() ? 0 : columns.back().offset + columns.back().slot_bytes();
  offset = (offset + column.slot_bytes() - 1) / column.slot_bytes() * column.slot_bytes();
  column.offset = offset;
  columns.push_back(std::move(column));
}

/// "s32 a, f32 c[4]"
std::vector<Column> parse_columns(std::string_view text) {
  std::vector<Column> columns;
  std::istringstream items{std::string(text)};
  for (std::string item; std::getline(items, item, ',');) {
    const std::vector<std::string> words = words_of(item);
    if (words.size() != 2) refuse(fmt::format("'{}' is no type and name", item));
    Column column = column_of_type(words[0]);
    const std::size_t bracket = words[1].find('[');
    if (bracket == std::string::npos) {
      column.name = words[1];
      place(columns, column);
      continue;
    }
    const int count = number(std::string_view(words[1]).substr(bracket + 1, words[1].size() - bracket - 2));
    for (int i = 0; i < count; ++i) {
      column.name = words[1].substr(0, bracket) + std::to_string(i);
      place(columns, column);
    }
  }
  return columns;
}

/// One case while it is read; `finish` assigns rows to threads.
class Reader {
 public:
  Reader(std::string file, std::string family, int line, std::string name) {
    case_.file = std::move(file);
    case_.family = std::move(family);
    case_.line = line;
    case_.name = std::move(name);
  }

  void keyword(std::string_view line) {
    const std::size_t space = std::min(line.find(' '), line.size());
    section_ = line.substr(0, space);
    const std::string_view rest = line.substr(std::min(space + 1, line.size()));
    if (section_ == "target")
      target(rest);
    else if (section_ == "threads")
      case_.block = dimensions(rest);
    else if (section_ == "blocks")
      case_.grid = dimensions(rest);
    else if (section_ == "shared")
      case_.shared_bytes = number(rest);
    else if (section_ == "refused")
      case_.refused = rest;
    else if (section_ == "in")
      case_.in = parse_columns(rest);
    else if (section_ == "out")
      case_.out = parse_columns(rest);
    else if (section_ == "judge")
      judge(words_of(rest));
    else if (!(rest.empty() &&
               (section_ == "module" || section_ == "ptx" || section_ == "rows" || section_ == "lanes")))
      refuse(fmt::format("'{}' is not understood", line));
  }

  void content(std::string_view line) {
    if (section_ == "module")
      case_.module_text += std::string(line) + "\n";
    else if (section_ == "ptx")
      case_.body += std::string(line) + "\n";
    else if (section_ == "rows")
      row(words_of(line));
    else if (section_ == "lanes")
      lane_column(words_of(line));
    else
      refuse("nothing that such lines belong to");
  }

  Case finish() {
    if (case_.body.empty() || case_.out.empty()) refuse("a case needs `ptx` and `out`");
    const auto all = static_cast<std::size_t>(case_.rows());
    if (!columns_given_.empty()) from_columns(all);
    if (case_.expected.empty() || all % case_.expected.size() != 0)
      if (case_.expected.size() != 0 && case_.expected.size() > all)
        refuse(fmt::format("{} rows for {} threads", case_.expected.size(), all));
    if (case_.expected.empty()) refuse("a case needs `rows` or `lanes`");
    for (std::size_t i = case_.expected.size(), period = i; i < all; ++i) {
      case_.given.push_back(case_.given[i % period]);
      case_.expected.push_back(case_.expected[i % period]);
    }
    return std::move(case_);
  }

 private:
  /// `90`, or `90a` for an architecture alone.
  void target(std::string_view text) {
    case_.for_target_alone = text.ends_with('a');
    if (case_.for_target_alone) text.remove_suffix(1);
    case_.target = number(text);
  }

  void judge(const std::vector<std::string>& words) {
    using Measure = Tolerance::Measure;
    bool found = false;
    for (Column& column : case_.out) {
      if (words.empty() || column.name.substr(0, words[0].size()) != words[0]) continue;
      if (!std::all_of(column.name.begin() + static_cast<std::ptrdiff_t>(words[0].size()), column.name.end(),
                       [](char c) { return c >= '0' && c <= '9'; }))
        continue;
      found = true;
      if (words.size() == 2 && words[1] == "unordered")
        column.unordered = true;
      else if (words.size() == 3 && words[1] == "ulp")
        column.tolerance = {Measure::ulp, std::stod(words[2])};
      else if (words.size() == 3 && words[1] == "relative")
        column.tolerance = {Measure::relative, std::stod(words[2])};
      else if (words.size() == 3 && words[1] == "absolute")
        column.tolerance = {Measure::absolute, std::stod(words[2])};
      else
        refuse("judge: COLUMN ulp|relative|absolute N, or COLUMN unordered");
    }
    if (!found) refuse("judge: no such column; `out` comes first");
  }

  void row(const std::vector<std::string>& words) {
    const auto arrow = std::find(words.begin(), words.end(), "->");
    const auto inputs = static_cast<std::size_t>(arrow - words.begin());
    if (inputs != case_.in.size() || arrow == words.end() || words.size() != inputs + 1 + case_.out.size())
      refuse(fmt::format("a row has {} values, -> and {} values", case_.in.size(), case_.out.size()));
    std::vector<std::uint64_t> given;
    std::vector<Expected> expected;
    for (std::size_t i = 0; i < inputs; ++i) given.push_back(parse_value(case_.in[i], words[i]).bits);
    for (std::size_t i = 0; i < case_.out.size(); ++i)
      expected.push_back(parse_value(case_.out[i], words[inputs + 1 + i]));
    case_.given.push_back(std::move(given));
    case_.expected.push_back(std::move(expected));
  }

  /// "a: 0..30 7*2"; may go on in further lines of the same name.
  void lane_column(const std::vector<std::string>& words) {
    if (words.size() < 2 || !words[0].ends_with(':')) refuse("a column is `name: values`");
    const std::string name = words[0].substr(0, words[0].size() - 1);
    const auto has = [&](const Column& column) { return column.name == name; };
    if (std::none_of(case_.in.begin(), case_.in.end(), has) &&
        std::none_of(case_.out.begin(), case_.out.end(), has))
      refuse(fmt::format("{} is neither in nor out", name));
    auto place = std::find_if(columns_given_.begin(), columns_given_.end(),
                              [&](auto& given) { return given.first == name; });
    if (place == columns_given_.end()) place = columns_given_.insert(place, {name, {}});
    for (std::size_t i = 1; i < words.size(); ++i) expand(words[i], place->second);
  }

  static void expand(const std::string& word, std::vector<std::string>& values) {
    const std::size_t dots = word.find("..");
    const std::size_t star = word.find('*', 1);
    if (dots != std::string::npos) {
      const int first = number(word.substr(0, dots));
      const int last = number(word.substr(dots + 2));
      const int step = first <= last ? 1 : -1;
      for (int value = first; value != last + step; value += step) values.push_back(std::to_string(value));
    } else if (star != std::string::npos) {
      values.insert(values.end(), static_cast<std::size_t>(number(word.substr(star + 1))),
                    word.substr(0, star));
    } else {
      values.push_back(word);
    }
  }

  void from_columns(std::size_t all) {
    case_.given.assign(all, std::vector<std::uint64_t>(case_.in.size()));
    case_.expected.assign(all, std::vector<Expected>(case_.out.size()));
    const auto values_of = [&](const std::string& name) -> const std::vector<std::string>& {
      for (const auto& [given, values] : columns_given_)
        if (given == name) {
          if (values.size() != all)
            refuse(fmt::format("{} has {} values for {} threads", name, values.size(), all));
          return values;
        }
      refuse(fmt::format("{} has no values", name));
    };
    for (std::size_t c = 0; c < case_.in.size(); ++c) {
      const auto& values = values_of(case_.in[c].name);
      for (std::size_t i = 0; i < all; ++i) case_.given[i][c] = parse_value(case_.in[c], values[i]).bits;
    }
    for (std::size_t c = 0; c < case_.out.size(); ++c) {
      const auto& values = values_of(case_.out[c].name);
      for (std::size_t i = 0; i < all; ++i) case_.expected[i][c] = parse_value(case_.out[c], values[i]);
    }
  }

  Case case_;
  std::string section_;
  std::vector<std::pair<std::string, std::vector<std::string>>> columns_given_;
};

}  // namespace

int row_bytes(const std::vector<Column>& columns) {
  if (columns.empty()) return 0;
  return (columns.back().offset + columns.back().slot_bytes() + 15) / 16 * 16;
}

std::vector<Case> parse_cases(std::string_view text, const std::string& file, const std::string& family) {
  std::vector<Case> cases;
  std::vector<Reader> open;  // none or one
  std::istringstream lines{std::string(text)};
  int line_number = 0;
  try {
    for (std::string line; std::getline(lines, line);) {
      ++line_number;
      if (line.empty() || line[0] == '#') continue;
      if (line.starts_with("case ")) {
        if (!open.empty()) cases.push_back(open.back().finish());
        open.clear();
        open.emplace_back(file, family, line_number, line.substr(5));
      } else if (open.empty()) {
        refuse("the first word of a file is `case`");
      } else if (line[0] == ' ') {
        open.back().content(line);
      } else {
        open.back().keyword(line);
      }
    }
    if (!open.empty()) cases.push_back(open.back().finish());
  } catch (const Error& error) {
    refuse(fmt::format("{}:{}: {}", file, line_number, error.what()));
  }
  std::set<std::string> names;
  for (const Case& test : cases)
    if (!names.insert(test.name).second)
      refuse(fmt::format("{}:{}: a second case '{}'", file, test.line, test.name));
  return cases;
}

std::vector<Case> load_cases(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".cases") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::vector<Case> cases;
  for (const std::filesystem::path& file : files) {
    std::ifstream stream(file);
    const std::string text{std::istreambuf_iterator<char>(stream), {}};
    std::vector<Case> more = parse_cases(text, file.string(), file.stem().string());
    std::move(more.begin(), more.end(), std::back_inserter(cases));
  }
  return cases;
}

}  // namespace sparsekiln::conformance
