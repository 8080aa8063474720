#include "compiler/row_sets.h"

namespace sparsekiln {

RowSets RowSets::of(const Layout& layout) {
  RowSets sets;
  sets.columns = layout.cols();
  sets.begin.assign(layout.crow().begin(), layout.crow().end());
  if (sets.begin.empty()) sets.begin.push_back(0);
  sets.cols.assign(layout.col().begin(), layout.col().end());
  return sets;
}

}  // namespace sparsekiln
