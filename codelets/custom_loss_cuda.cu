/* A loss of the program's own: its CUDA function computes the rows' values and gradients, the
 * library adds the values and scales the gradients. */
#include "codelets/custom_loss.h"

#include "codelets/kernels/team_cuda.h"

namespace {

using arguments = sl__custom_loss_args;

/* The labels, or rows of targets, of the rows from `first` on, side by side. */
template <class T>
__global__ void gather(arguments a, int64_t first, int64_t width, int64_t n, const T *targets,
                       T *side_by_side) {
  int64_t i = sl::thread_index();
  if (i >= n) return;
  int64_t row = i / width;
  side_by_side[i] = targets[sl__custom_loss_target(&a, first + row) * width + (i - row * width)];
}

/* A team has a row. dy may be NULL. The sums: losses; with labels, rows whose largest output is the
 * label's, else rows that count; rows that count; 0. */
template <class TEAM>
__global__ void __launch_bounds__(1024, 1)
    settle(arguments a, const float *y, const void *targets, const float *losses, float *dy,
           sl::sums<4> sums) {
  double loss = 0, right = 0, counted = 0;
  for (int64_t n = TEAM::first(); n < a.rows; n += TEAM::count()) {
    const float *z = y + n * a.size;
    int64_t at = sl__custom_loss_target(&a, n);
    int32_t label = a.own.takes_labels ? static_cast<const int32_t *>(targets)[at] : 0;
    bool counts = label >= 0 && label < a.size;
    int against = 0; /* missing targets, or outputs that come before the label's */
    for (int64_t i = TEAM::rank(); counts && i < a.size; i += TEAM::size())
      against += a.own.takes_labels
                     ? z[i] > z[label] || (z[i] == z[label] && i < label)
                     : isnan(static_cast<const float *>(targets)[at * a.size + i]) != 0;
    against = TEAM::sum(against);
    if (!a.own.takes_labels) counts = against == 0;
    if (TEAM::rank() == 0 && counts) {
      loss += static_cast<double>(losses[n]);
      right += against == 0;
      counted++;
    }
    for (int64_t i = TEAM::rank(); dy && i < a.size; i += TEAM::size())
      dy[n * a.size + i] = counts ? dy[n * a.size + i] * a.scale : 0;
  }
  double v[4] = {loss, right, counted, 0};
  sums.leave(v);
}

template <class TEAM>
void launch_settle(const arguments &a, void *buffers[], const float *losses, float *dy,
                   struct sl__cuda *cuda) {
  sl::sums<4> sums = sl::sums_into<4>(cuda, sl::out<float>(buffers, 2));
  unsigned grid = sl::team_grid<TEAM>(a.rows, sl::THREADS);
  SL__LAUNCH((settle<TEAM>), grid, sl::THREADS, 0, cuda->stream, a, sl::in<float>(buffers, 0),
             sl::in<void>(buffers, 1), losses, dy, sums);
  sl::finish(cuda, sums, grid);
}

bool are_side_by_side(const arguments &a) { return a.steps == a.columns || a.steps == a.rows; }

/* The targets of the rows from `first` on: where they are, or gathered in `room`. */
template <class T>
const T *targets_of(const arguments &a, const T *targets, int64_t width, int64_t first,
                    int64_t count, void *room, struct sl__cuda *cuda) {
  if (are_side_by_side(a)) return targets + sl__custom_loss_target(&a, first) * width;
  T *side_by_side = static_cast<T *>(room);
  SL__LAUNCH((gather<T>), sl::blocks(count * width), sl::THREADS, 0, cuda->stream, a, first, width,
             count * width, targets, side_by_side);
  return side_by_side;
}

/* Calls the program's function for all rows, or for a few whose targets are gathered. Returns
 * whether it succeeded. */
bool compute_rows(const arguments &a, void *buffers[], float *losses, float *dy, char *room,
                  struct sl__cuda *cuda) {
  constexpr int64_t GATHERED = 1 << 20; /* values of several rows, at most */
  int64_t most = GATHERED / (a.own.takes_labels ? 1 : a.size);
  if (are_side_by_side(a)) most = a.rows;
  if (most < 1) most = 1;
  for (int64_t first = 0, n; first < a.rows; first += n) {
    n = a.rows - first < most ? a.rows - first : most;
    struct sl_loss_rows rows = {};
    rows.user = a.own.user;
    rows.count = n;
    rows.size = a.size;
    rows.y = sl::in<float>(buffers, 0) + first * a.size;
    if (a.own.takes_labels)
      rows.label = targets_of(a, sl::in<int32_t>(buffers, 1), 1, first, n, room, cuda);
    else
      rows.target = targets_of(a, sl::in<float>(buffers, 1), a.size, first, n, room, cuda);
    rows.dy = dy ? dy + first * a.size : nullptr;
    rows.loss = losses + first;
    enum sl_status status = a.own.rows_cuda(&rows, cuda->stream);
    rows.message[sizeof rows.message - 1] = '\0';
    sl__custom_loss_ended(&a, status, rows.message);
    if (status != SL_OK) return false;
  }
  return true;
}

/* The workspace: partial sums, the rows' losses, gathered targets. */
void task(void *buffers[], void *cl_arg, float *dy, struct sl__cuda *cuda) {
  const arguments *a = sl::args<arguments>(cl_arg);
  size_t at = static_cast<size_t>(sl::PARTS) * 4 * sizeof(double);
  float *losses = reinterpret_cast<float *>(static_cast<char *>(cuda->workspace) + at);
  at += (static_cast<size_t>(a->rows) * sizeof(float) + 255) / 256 * 256;
  char *room = static_cast<char *>(cuda->workspace) + at;
  if (!compute_rows(*a, buffers, losses, dy, room, cuda)) return;
  if (a->size <= sl::SHORT_ROW)
    launch_settle<sl::warp_team>(*a, buffers, losses, dy, cuda);
  else
    launch_settle<sl::block_team>(*a, buffers, losses, dy, cuda);
}

}  // namespace

SL__CUDA(custom_loss) { task(buffers, cl_arg, nullptr, cuda); }

SL__CUDA(custom_loss_gradient) { task(buffers, cl_arg, sl::out<float>(buffers, 3), cuda); }
