#include "tests/conformance/golden.h"

#include <cstdlib>
#include <fstream>

#include <fmt/format.h>
#include <sparsekiln/error.h>
#include <nlohmann/json.hpp>

#include "tests/conformance/assemble.h"

namespace sparsekiln::conformance {
namespace {

/// FNV-1a over the module and the inputs: all that an answer depends on.
std::string digest(const Case& test) {
  std::uint64_t hash = 0xcbf2'9ce4'8422'2325;
  const auto add = [&](std::uint8_t byte) { hash = (hash ^ byte) * 0x100'0000'01b3; };
  for (const char c : module_of(test)) add(static_cast<std::uint8_t>(c));
  for (const auto& row : test.given)
    for (const std::uint64_t value : row)
      for (int shift = 0; shift < 64; shift += 8) add(static_cast<std::uint8_t>(value >> shift));
  for (const int number : {test.block[0], test.block[1], test.block[2], test.grid[0], test.grid[1],
                           test.grid[2], test.shared_bytes})
    for (int shift = 0; shift < 32; shift += 8) add(static_cast<std::uint8_t>(number >> shift));
  return fmt::format("{:016x}", hash);
}

std::string text_of(const Answer& answer) {
  std::string text;
  for (const auto& row : answer)
    for (const std::uint64_t value : row) text += fmt::format("{}{:x}", text.empty() ? "" : " ", value);
  return text;
}

std::optional<Answer> answer_of(const Case& test, const std::string& text) {
  Answer answer(test.expected.size());
  const char* place = text.c_str();
  for (auto& row : answer)
    for (std::size_t c = 0; c < test.out.size(); ++c) {
      char* end = nullptr;
      row.push_back(std::strtoull(place, &end, 16));
      if (end == place) return std::nullopt;
      place = end;
    }
  return answer;
}

}  // namespace

GoldenAnswers GoldenAnswers::load(const std::filesystem::path& folder) {
  GoldenAnswers answers;
  if (!std::filesystem::is_directory(folder)) return answers;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".json") continue;
    try {
      std::ifstream stream(entry.path());
      const nlohmann::json document = nlohmann::json::parse(stream).at("answers");
      for (const auto& [title, given] : document.at("cases").items())
        answers.by_title_[title].push_back({document.at("device"), given.at("digest"), given.at("values")});
    } catch (const nlohmann::json::exception& error) {
      throw Error(ErrorKind::invalid_argument, fmt::format("{}: {}", entry.path().string(), error.what()));
    }
  }
  return answers;
}

std::vector<GoldenAnswers::Entry> GoldenAnswers::to(const Case& test) const {
  std::vector<Entry> entries;
  const auto place = by_title_.find(test.title());
  if (place == by_title_.end()) return entries;
  for (const Stored& stored : place->second) {
    if (stored.digest != digest(test)) continue;
    std::optional<Answer> answer = answer_of(test, stored.values);
    if (!answer)
      throw Error(ErrorKind::invalid_argument,
                  fmt::format("{}: too few values from {}", test.title(), stored.device));
    entries.push_back({stored.device, std::move(*answer)});
  }
  return entries;
}

void AnswerWriter::add(const Case& test, const Answer& answer) {
  by_title_[test.title()] = nlohmann::json{{"digest", digest(test)}, {"values", text_of(answer)}}.dump();
}

void AnswerWriter::write(const std::filesystem::path& file, const cuda::DeviceInfo& device,
                         int driver_version) const {
  std::ofstream stream(file);
  stream << fmt::format(
      "{{\"answers\": {{\"device\": {}, \"compute_capability\": {}, \"driver\": {}, \"cases\": {{",
      nlohmann::json(device.name).dump(), device.compute_capability, driver_version);
  const char* separator = "\n";
  for (const auto& [title, entry] : by_title_) {
    stream << separator << nlohmann::json(title).dump() << ": " << entry;
    separator = ",\n";
  }
  stream << "\n}}}\n";
  if (!stream) throw Error(ErrorKind::invalid_argument, fmt::format("{} cannot be written", file.string()));
}

}  // namespace sparsekiln::conformance
