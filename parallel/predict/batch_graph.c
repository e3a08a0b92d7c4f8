#include "parallel/predict/batch_graph.h"

#include "parallel/step/precision.h"

enum sl_status sl__batch_graph_refresh(const struct sl__served_model *served,
                                       const struct sl__grid *grid) {
  struct sl_model *model = served->model;
  enum sl_status status = SL_OK;
  for (int i = 0; i < model->count && status == SL_OK && grid->math == SL_MATH_BF16; i++)
    status = sl__bf16_copy_refresh(model, i, &sl__grid_device(grid, i, 0)->place);
  return status == SL_OK ? sl__weight_cache_refresh(served->weights) : status;
}

struct sl__tensor *sl__batch_graph_output(const struct sl__batch_graph *batch) {
  return batch->plan->slices[0].y[batch->plan->model->count - 1];
}

static enum sl_status capture(const struct sl__served_model *served, const struct sl__grid *grid,
                              struct sl__batch_graph *batch) {
  struct sl__step step = {.x = batch->x};
  enum sl_status status =
      sl__batch_graph_refresh(served, grid); /* the capture must not contain it */
  if (status == SL_OK)
    status = sl__graph_new(served->model->context, &sl__op_subgraph, &sl__op_helper, &batch->graph);
  if (status != SL_OK) return status;
  sl__graph_use_weight_cache(batch->graph, served->weights, batch->x);
  sl__graph_cores(batch->graph, served->cores);
  status = sl__graph_bind(batch->graph, sl__batch_graph_output(batch));
  if (status != SL_OK) return status;
  sl__graph_capture(batch->graph);
  status = sl__plan_submit(batch->plan, &step);
  status = sl__graph_compile(batch->graph, status);
  if (status == SL_OK) sl__graph_drop_handles(batch->graph);
  return status;
}

void sl__batch_graph_clear(struct sl__batch_graph *batch) {
  sl__plan_free(batch->plan); /* waits for the tasks, which need the graph */
  sl__tensor_free(batch->x);
  sl__graph_free(batch->graph);
  *batch = (struct sl__batch_graph){0};
}

enum sl_status sl__batch_graph_open(const struct sl__served_model *served,
                                    const struct sl__grid *grid, int64_t rows, void *inputs,
                                    struct sl__batch_graph *batch) {
  struct sl_model *model = served->model;
  struct sl_shape shape = sl__with_rows(rows, &model->sample);
  enum sl_type type = served->words ? SL_I32 : SL_F32;
  enum sl_status status = SL_OK;
  if (batch->graph) return SL_OK;
  batch->rows = rows;
  SL__TRY(sl__tensor_host(model->context, &shape, type, inputs, &batch->x));
  SL__TRY(sl__plan_new(model, grid, rows, 0, false, &batch->plan));
  SL__TRY(capture(served, grid, batch));
out:
  if (status != SL_OK) sl__batch_graph_clear(batch);
  return status;
}
