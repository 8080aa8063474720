#include "compiler/cpu/layout_ir.h"

#include <cstddef>
#include <utility>

#include "compiler/cpu/call.h"

namespace sparsekiln::cpu {

LayoutIr::LayoutIr(EmittedModule& module, std::vector<std::string> names, const std::string& suffix,
                   LayoutData data)
    : module_(module),
      data_(std::make_unique<const LayoutData>(std::move(data))),
      names_(std::move(names)),
      gates_name_("gate_of" + suffix) {
  for (std::string& name : names_) name += suffix;
}

LayoutIr::LayoutIr(EmittedModule& module) : module_(module) {}

LayoutIr::Value* LayoutIr::image() const {
  VectorIr& v = module_.ir();
  return v.unchanging(v.ir.getPtrTy(), v.at(v.call, static_cast<std::int64_t>(offsetof(Call, tables))), 8,
                      "tables");
}

LayoutIr::Value* LayoutIr::number(LayoutNumber number) const {
  VectorIr& v = module_.ir();
  if (!attached()) return v.constant((*data_)[number]);
  return v.unchanging(v.ir.getInt64Ty(), v.at(image(), place_of(number)), 8);
}

LayoutIr::Value* LayoutIr::table(std::size_t table) {
  VectorIr& v = module_.ir();
  if (attached()) {
    Value* base = image();
    return v.at(base, v.unchanging(v.ir.getInt64Ty(), v.at(base, place_of_offset(table)), 8));
  }
  if (globals_[table] == nullptr) globals_[table] = module_.table(names_[table], data_->tables[table]);
  return globals_[table];
}

LayoutIr::Value* LayoutIr::gates() {
  if (attached() || data_->gates.empty()) return nullptr;
  if (gates_ == nullptr) gates_ = module_.table(gates_name_, data_->gates);
  return gates_;
}

}  // namespace sparsekiln::cpu
