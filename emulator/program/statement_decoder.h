#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "emulator/program/assembly.h"
#include "emulator/program/decoder.h"

namespace sparsekiln::emulator {

/// Decodes one statement: gives a family what it asks for, and adds what it made to an Assembly.
class StatementDecoder final : public Decoder {
 public:
  StatementDecoder(Assembly& assembly, const ptx::Statement& statement);

  /// Runs `family`, refuses what it left unread, and appends the instruction, after those that it needs.
  void run(Family family);

  /// The domain of the last modifier that is a type; any: there is none, or it is of no domain.
  [[nodiscard]] Domain domain() const;

  [[nodiscard]] const ptx::Statement& statement() const override { return statement_; }
  [[nodiscard]] int compute_capability() const override { return assembly_.module().compute_capability; }
  void need_sm_90a() const override;
  [[nodiscard]] ptx::Error refusal(const std::string& why) const override;
  bool take(std::string_view name) override;
  std::string_view take_one(std::initializer_list<std::string_view> names) override;
  ptx::Type take_type() override;
  [[nodiscard]] bool more_modifiers() const override { return next_modifier() < statement_.modifiers.size(); }
  [[nodiscard]] std::size_t operands() const override { return statement_.operands.size(); }
  void expect_operands(std::size_t least, std::size_t most) const override;
  [[nodiscard]] const ptx::Operand& operand(std::size_t index) const override;
  [[nodiscard]] int register_bits(const ptx::Operand& operand) const override;
  void write(const ptx::Operand& operand, int bits) override;
  void read(const ptx::Operand& operand, ptx::Type type) override;
  void read_address(const ptx::Operand& operand) override;
  void read_tensor_address(const ptx::Operand& operand, std::size_t dimensions) override;
  [[nodiscard]] std::uint64_t parameter_offset(const ptx::Operand& operand,
                                               std::uint64_t bytes) const override;
  void ignore(const ptx::Operand& operand) const override { mark(operand); }
  [[nodiscard]] std::int64_t constant(const ptx::Operand& operand) const override;
  Instruction& instruction() override { return draft_.instruction; }
  const std::uint64_t* keep(std::vector<std::uint64_t> data) override;
  void accesses(int bytes) override;
  void partial_write() override { draft_.partial = true; }
  void access_later(const ptx::Operand& operand) override;

 private:
  [[nodiscard]] const ptx::Register& register_of(const ptx::Operand& operand) const;
  [[nodiscard]] int row_bytes_or_refuse(int bits, const ptx::Operand& operand) const;
  [[nodiscard]] std::uint64_t address_of_variable(const ptx::Operand& operand) const;
  /// The same where a parameter's own address, in the space of parameters, is allowed as well.
  [[nodiscard]] std::uint64_t address_of_named(const ptx::Operand& operand) const;
  [[nodiscard]] std::uint64_t immediate_bits(const ptx::Operand& operand, ptx::Type type) const;
  [[nodiscard]] std::uint32_t row_to_read(const ptx::Operand& operand, ptx::Type type);
  /// The first modifier that has not been taken; as many as there are: none.
  [[nodiscard]] std::size_t next_modifier() const;
  /// Whether a modifier is what can be taken now, before others that stand to its left.
  [[nodiscard]] bool can_take(std::size_t modifier) const;
  /// An instruction before this one that fills a temporary row from `from`.
  std::uint32_t add_before(Handler handler, int bytes, std::uint32_t from);
  void read_base(const ptx::Operand& operand);
  [[nodiscard]] bool was_used(const ptx::Operand& operand) const;
  void mark(const ptx::Operand& operand) const { used_.push_back(&operand); }

  Assembly& assembly_;
  const ptx::Statement& statement_;
  std::vector<bool> taken_;  ///< by modifier
  mutable std::vector<const ptx::Operand*> used_;
  Draft draft_;
};

}  // namespace sparsekiln::emulator
