#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <sparsekiln/options.h>
#include <sparsekiln/problem.h>

namespace sparsekiln {

/// What a field of a Computation is called, where readers and programs meet it.
struct FieldNames {
  std::string_view name;      ///< "activation order" is "order": in identities, records and the C interface
  std::string_view argument;  ///< of `compile` in Python; a row that states none has `name`
  std::string_view option;    ///< of the command line, without its dashes
  std::string_view option_alias;  ///< another spelling of `option`; empty: there is none
  std::string_view axis;     ///< key of a jobs file that has a list of values; empty: one value, see job_key
  std::string_view follows;  ///< the field whose value this one has where it is not stated; empty: none
  std::string_view example;
  std::string_view help;
  /// Left out of identities and records where it has its usual value, so that those of earlier versions stay
  /// valid.
  bool optional = false;
};

/// One field of a Computation, as text. All that names, stores, reads or passes on the fields runs over the
/// table of these: identities, stored requests, Binaries, the command line, jobs files, the command that
/// makes a pack, reports, the C interface and, through that, Python. A new member of Computation and of
/// Options is a new row of the table in computation_fields.cpp, which does not compile without it.
struct ComputationField : FieldNames {
  /// How values are written where there are types, such as in JSON.
  enum class Kind : std::uint8_t { word, flag, number, word_or_number };
  Kind kind = Kind::word;

  /// The value as it is read: flags are "yes" and "no".
  [[nodiscard]] std::string text(const Computation& what) const { return calls.text(what); }
  /// Throws `invalid_argument` saying what would work.
  void read(Computation& what, std::string_view text) const { calls.read(what, text, name); }
  void read(Options& options, std::string_view text) const { calls.read_option(options, text, name); }
  /// Whether identities and records say this field of `what`.
  [[nodiscard]] bool stated(const Computation& what) const {
    return !optional || text(what) != text(Computation{});
  }
  /// For hashing; equal values have equal bits.
  [[nodiscard]] std::uint64_t bits(const Options& options) const { return calls.bits(options); }

  /// The text of the default; empty for a field that follows another one.
  [[nodiscard]] std::string usual() const { return follows.empty() ? text(Computation{}) : ""; }
  /// All values, as a list for readers; empty where there are too many.
  [[nodiscard]] std::string choices() const { return calls.choices(); }
  /// The key of a jobs file: `axis`, else the option's name as one word.
  [[nodiscard]] std::string job_key() const;
  /// Another key that means the same: `option_alias` as one word.
  [[nodiscard]] std::string job_key_alias() const;

  struct Calls {
    std::string (*text)(const Computation&);
    void (*read)(Computation&, std::string_view text, std::string_view field);
    void (*read_option)(Options&, std::string_view text, std::string_view field);
    void (*decide)(Computation&, const Options&);
    std::uint64_t (*bits)(const Options&);
    std::string (*choices)();
  } calls;
};

/// In the order of identities.
[[nodiscard]] std::span<const ComputationField> computation_fields();

/// The field of that name, or of that argument. Throws `invalid_argument` that lists the names.
[[nodiscard]] const ComputationField& computation_field(std::string_view name);

/// What the options decide.
[[nodiscard]] Computation computation_of(const Options& options);

}  // namespace sparsekiln
