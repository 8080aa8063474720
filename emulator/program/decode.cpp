#include "emulator/program/decode.h"

#include <algorithm>
#include <map>
#include <utility>

#include "emulator/machine/warp.h"
#include "emulator/program/assembly.h"
#include "emulator/program/async_registers.h"
#include "emulator/program/decoder.h"
#include "emulator/program/flow.h"
#include "emulator/program/rows.h"

namespace sparsekiln::emulator {
namespace {

using Opcodes = std::map<std::pair<std::string_view, Domain>, Family>;

const Opcodes& opcodes() {
  static const Opcodes all = [] {
    Opcodes result;
    for (const auto& family :
         {integer_opcodes,        logic_opcodes,      comparison_opcodes, move_opcodes,     warp_opcodes,
          load_store_opcodes,     atomic_opcodes,     barrier_opcodes,    mbarrier_opcodes, cluster_opcodes,
          async_copy_opcodes,     tensor_map_opcodes, matrix_opcodes,     tensor_opcodes,   wgmma_opcodes,
          register_count_opcodes, conversion_opcodes, address_opcodes,    float_opcodes,    half_opcodes})
      for (const Opcode& opcode : family())
        result.emplace(std::pair(opcode.name, opcode.domain), opcode.decode);
    return result;
  }();
  return all;
}

bool ends_all_lanes(const ptx::Statement& statement) {
  return !statement.guarded && (statement.opcode == "ret" || statement.opcode == "exit");
}

/// The statement that a branch names.
std::uint32_t target_of(const Decoder& decoder, const ptx::Function& function) {
  decoder.expect_operands(1, 1);
  const ptx::Operand& label = decoder.operand(0);
  if (label.kind != ptx::Operand::Kind::label || label.index >= function.statements.size())
    decoder.refuse("does not name a label");
  return label.index;
}

/// Drafts of a function, statement by statement.
class Translation {
 public:
  explicit Translation(Assembly& assembly) : assembly_(assembly) {}

  void run() {
    const ptx::Function& function = assembly_.function();
    for (const ptx::Statement& statement : function.statements) {
      first_draft_.push_back(static_cast<std::uint32_t>(assembly_.drafts.size()));
      translate(statement);
    }
    for (Draft& draft : assembly_.drafts)
      if (draft.flow == Flow::branch) draft.target = first_draft_[draft.target];
  }

 private:
  void translate(const ptx::Statement& statement) {
    Decoder decoder(assembly_, statement);
    if (statement.opcode == "bra") {
      add_branch(decoder);
    } else if (statement.opcode == "ret" || statement.opcode == "exit") {
      if (statement.opcode == "ret")
        decoder.take("uni");  // says that all lanes do, which nothing here rests on
      decoder.expect_operands(0, 0);
      add_flow(decoder, Kind::branch, end_lanes, Flow::end);
    } else if (statement.opcode == "trap") {
      decoder.expect_operands(0, 0);
      add_flow(decoder, Kind::other, trap, Flow::next);
    } else {
      const Opcodes& known = opcodes();
      auto family = known.find({statement.opcode, decoder.domain()});
      if (family == known.end()) family = known.find({statement.opcode, Domain::any});
      if (family == known.end()) decoder.refuse("is not implemented");
      decoder.run(family->second);
    }
  }

  void add_branch(Decoder& decoder) {
    const bool uniform = decoder.take("uni");
    const std::uint32_t target = target_of(decoder, assembly_.function());
    // A branch to where lanes end is an end: lanes that leave early delay no others at the point where all
    // meet. They do not delay a barrier of the whole block either, which waits for threads that have not
    // ended (PTX ISA 9.7.13.1); a barrier of a number of threads continues to count warps
    // (machine/barrier.h).
    if (ends_all_lanes(assembly_.function().statements[target])) {
      add_flow(decoder, Kind::branch, end_lanes, Flow::end);
      return;
    }
    add_flow(decoder, Kind::branch, uniform ? branch_uniform : branch, Flow::branch);
    assembly_.drafts.back().target = target;
  }

  void add_flow(Decoder& decoder, Kind kind, Handler handler, Flow flow) {
    if (decoder.more_modifiers()) decoder.refuse("has a modifier that is not implemented");
    decoder.instruction().kind = kind;
    decoder.instruction().run = handler;
    assembly_.drafts.push_back({.instruction = decoder.instruction(), .flow = flow});
  }

  Assembly& assembly_;
  std::vector<std::uint32_t> first_draft_;  ///< of each statement
};

/// Drafts become instructions: joins are put before the blocks where lanes meet, rows and targets become
/// numbers.
class Emission {
 public:
  Emission(const Assembly& assembly, Program& program)
      : assembly_(assembly), program_(program), blocks_(basic_blocks(assembly.drafts)) {}

  void run() {
    place_joins();
    check_size();
    plan_ = plan_rows(assembly_.drafts, blocks_, assembly_.rows());
    for (std::uint32_t b = 0; b < blocks_.size(); ++b) {
      if (joins_[b]) emit_join(b);
      for (std::uint32_t i = blocks_[b].first; i < blocks_[b].last; ++i) emit(assembly_.drafts[i], b);
    }
    point_to_operands();
    fix_rows();
    program_.register_bytes = plan_.bytes;
    program_.async_registers = plan_.async_registers;
    keep_generic_accesses_own();
  }

 private:
  /// Liveness takes a bit a block and row, several times over.
  void check_size() const {
    constexpr std::uint64_t kMost = std::uint64_t{1} << 31;
    if (std::uint64_t{blocks_.size()} * assembly_.rows().size() > kMost)
      throw ptx::Error(assembly_.function().line, "function " + assembly_.function().name + " is too large");
  }

  /// Where a branch's lanes may diverge.
  [[nodiscard]] bool parts(const BasicBlock& block) const {
    const Draft& last = assembly_.drafts[block.last - 1];
    return last.flow == Flow::branch && last.guarded() && last.instruction.run == branch;
  }

  void place_joins() {
    post_dominator_ = immediate_post_dominators(blocks_);
    joins_.assign(blocks_.size(), false);
    for (std::uint32_t b = 0; b < blocks_.size(); ++b)
      if (parts(blocks_[b]) && post_dominator_[b] != kNoBlock) joins_[post_dominator_[b]] = true;
    std::uint32_t pc = 0;
    for (std::uint32_t b = 0; b < blocks_.size(); ++b) {
      block_pc_.push_back(pc);
      pc += blocks_[b].last - blocks_[b].first + (joins_[b] ? 1 : 0);
    }
  }

  void emit_join(std::uint32_t block) {
    program_.code.push_back({.run = join,
                             .guard = kNoGuard,
                             .immediate = block_pc_[block],
                             .statement = assembly_.drafts[blocks_[block].first].instruction.statement,
                             .traits = kMadeByDecoder});
    operands_at_.push_back(program_.operand_pool.size());
  }

  void emit(const Draft& draft, std::uint32_t block) {
    Instruction instruction = draft.instruction;
    if (draft.guarded()) instruction.guard = plan_.offset[instruction.guard];
    if (draft.flow == Flow::branch) {
      instruction.immediate = block_pc_[target_block(draft)];
      const std::uint32_t join = parts(blocks_[block]) ? post_dominator_[block] : kNoBlock;
      instruction.detail = join == kNoBlock ? kNoJoin : block_pc_[join];
    }
    instruction.operand_count = static_cast<std::uint16_t>(draft.written.size() + draft.read.size());
    operands_at_.push_back(program_.operand_pool.size());
    for (const std::uint32_t row : draft.written) program_.operand_pool.push_back(plan_.offset[row]);
    for (const std::uint32_t row : draft.read) program_.operand_pool.push_back(plan_.offset[row]);
    program_.talks_to_blocks = program_.talks_to_blocks || (instruction.traits & kTalksToBlocks) != 0;
    program_.code.push_back(instruction);
  }

  [[nodiscard]] std::uint32_t target_block(const Draft& draft) const {
    const auto after =
        std::upper_bound(blocks_.begin(), blocks_.end(), draft.target,
                         [](std::uint32_t target, const BasicBlock& block) { return target < block.first; });
    return static_cast<std::uint32_t>(after - blocks_.begin() - 1);
  }

  /// Without mapa no generic address is in shared memory of another block.
  void keep_generic_accesses_own() {
    const auto maps = [&](const Instruction& instruction) {
      return program_.statement(instruction).opcode == "mapa";
    };
    if (std::any_of(program_.code.begin(), program_.code.end(), maps)) return;
    for (Instruction& instruction : program_.code)
      if (instruction.kind == Kind::memory_generic)
        instruction.traits &= static_cast<std::uint8_t>(~kTalksToCluster);
  }

  void point_to_operands() {
    for (std::size_t i = 0; i < program_.code.size(); ++i)
      program_.code[i].operands = program_.operand_pool.data() + operands_at_[i];
  }

  void fix_rows() {
    for (FixedRow row : assembly_.fixed_rows()) {
      row.row = plan_.offset[row.row];
      if (row.row != kNoRow) program_.fixed_rows.push_back(std::move(row));
    }
    for (const std::uint32_t row : plan_.zeroed)
      program_.fixed_rows.push_back({.row = plan_.offset[row], .bytes = assembly_.rows()[row].bytes});
  }

  const Assembly& assembly_;
  Program& program_;
  std::vector<BasicBlock> blocks_;
  std::vector<std::uint32_t> post_dominator_;  ///< of each block
  std::vector<char> joins_;                    ///< whether a block begins with a join
  std::vector<std::uint32_t> block_pc_;
  std::vector<std::size_t> operands_at_;  ///< of each instruction, in the pool
  RowPlan plan_;
};

/// A function may end by running over its end, or have a label there: one more `ret` makes both ordinary.
ptx::Function with_end(ptx::Function function) {
  const std::size_t size = function.statements.size();
  const bool named =
      std::any_of(function.statements.begin(), function.statements.end(), [&](const auto& statement) {
        return std::any_of(statement.operands.begin(), statement.operands.end(),
                           [&](const ptx::Operand& operand) {
                             return operand.kind == ptx::Operand::Kind::label && operand.index == size;
                           });
      });
  if (size != 0 && !named && ends_all_lanes(function.statements.back())) return function;
  const int line = size == 0 ? function.line : function.statements.back().line;
  function.statements.push_back({.line = line, .opcode = "ret"});
  return function;
}

}  // namespace

Program decode(const ptx::Module& module, const ptx::Function& function, const Addresses& addresses) {
  Program program;
  program.function = with_end(function);
  program.files = module.files;
  Assembly assembly(module, program.function, lay_out(module, program.function, addresses));
  Translation(assembly).run();
  mark_async_registers(assembly.drafts, assembly.rows());
  Emission(assembly, program).run();
  const Layout& layout = assembly.layout();
  program.shared_bytes = layout.shared_bytes;
  program.shared_alignment = layout.shared_alignment;
  program.local_bytes = layout.local_bytes;
  program.param_bytes = layout.param_bytes;
  program.narrowest_access = assembly.narrowest_access;
  program.storage = std::move(assembly.storage);
  return program;
}

}  // namespace sparsekiln::emulator
