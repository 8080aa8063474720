#include <sparsekiln/mixing.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include <fmt/format.h>
#include <sparsekiln/error.h>

namespace sparsekiln::patterns {
namespace {

constexpr std::int64_t kWordBits = 64;
constexpr std::size_t kWords = 8;
/// Input blocks of one pass.
constexpr std::int64_t kPass = kWordBits * kWords;

/// A block, and which input blocks of the pass reach it: one cache line.
struct alignas(64) Origins {
  std::array<std::uint64_t, kWords> words{};
};

void check(std::span<const Layout> layers) {
  for (std::size_t k = 0; k < layers.size(); ++k) {
    const Layout& layer = layers[k];
    if (layer.rows() == 0 || layer.cols() == 0)
      throw Error(ErrorKind::invalid_argument,
                  fmt::format("mixing: layer {} has {} × {} blocks; expected 1 × 1 or more", k + 1,
                              layer.rows(), layer.cols()));
    if (k > 0 && layer.cols() != layers[k - 1].rows())
      throw Error(
          ErrorKind::invalid_argument,
          fmt::format(
              "mixing: layer {} has {} block columns and layer {} has {} block rows; expected as many", k + 1,
              layer.cols(), k, layers[k - 1].rows()));
  }
}

/// The inputs of the first layer: those of the pass that begins at `first` are reached from themselves.
std::vector<Origins> start(std::int64_t first, std::int64_t inputs) {
  std::vector<Origins> origins(static_cast<std::size_t>(inputs));
  for (std::int64_t i = 0; i < std::min(kPass, inputs - first); ++i)
    origins[first + i].words[i / kWordBits] = std::uint64_t{1} << (i % kWordBits);
  return origins;
}

std::vector<Origins> product(const Layout& layer, const std::vector<Origins>& inputs) {
  std::vector<Origins> outputs(static_cast<std::size_t>(layer.rows()));
  for (std::int32_t row = 0; row < layer.rows(); ++row) {
    Origins reached;
    for (const std::int32_t column : layer.row(row))
      for (std::size_t word = 0; word < kWords; ++word) reached.words[word] |= inputs[column].words[word];
    outputs[row] = reached;
  }
  return outputs;
}

/// How many blocks each input block of the pass reaches.
void count(const std::vector<Origins>& reached, std::span<std::int32_t> counts) {
  std::array<std::int32_t, kPass> of_pass{};
  for (const Origins& origins : reached)
    for (std::size_t word = 0; word < kWords; ++word)
      for (std::int64_t bit = 0; bit < kWordBits; ++bit)
        of_pass[word * kWordBits + bit] += static_cast<std::int32_t>(origins.words[word] >> bit & 1);
  std::copy_n(of_pass.begin(), counts.size(), counts.begin());
}

Mixing figures(std::vector<std::int32_t> counts, std::int64_t outputs) {
  std::sort(counts.begin(), counts.end());
  const auto inputs = counts.size();
  std::int64_t pairs = 0;
  for (const std::int32_t reached : counts) pairs += reached;
  return {.minimum = counts.front(),
          .median = (static_cast<double>(counts[(inputs - 1) / 2]) + counts[inputs / 2]) / 2,
          .mean = static_cast<double>(pairs) / static_cast<double>(inputs),
          .maximum = counts.back(),
          .share = static_cast<double>(pairs) / (static_cast<double>(inputs) * static_cast<double>(outputs))};
}

}  // namespace

std::vector<Mixing> mixing(std::span<const Layout> layers) {
  check(layers);
  if (layers.empty()) return {};
  const std::int64_t inputs = layers.front().cols();
  std::vector<std::vector<std::int32_t>> counts(layers.size(),
                                                std::vector<std::int32_t>(static_cast<std::size_t>(inputs)));
  for (std::int64_t first = 0; first < inputs; first += kPass) {
    std::vector<Origins> reached = start(first, inputs);
    for (std::size_t k = 0; k < layers.size(); ++k) {
      reached = product(layers[k], reached);
      count(reached, std::span(counts[k]).subspan(first, std::min(kPass, inputs - first)));
    }
  }
  std::vector<Mixing> result;
  for (std::size_t k = 0; k < layers.size(); ++k)
    result.push_back(figures(std::move(counts[k]), layers[k].rows()));
  return result;
}

}  // namespace sparsekiln::patterns
