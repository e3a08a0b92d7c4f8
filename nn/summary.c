/* A model as a table for people, and its rows one by one for programs. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nn/layer.h"
#include "core/base/text.h"

enum column { LAYER, KIND, INPUTS, OUTPUT, PARAMETERS, MFLOP, KILOBYTES, COLUMNS };

static const char *const titles[COLUMNS] = {"layer",      "kind",  "inputs",     "output",
                                            "parameters", "MFLOP", "activations"};

struct row {
  char cell[COLUMNS][136]; /* room for two layers' names */
};

/* 431080 as "431,080": digits in groups of three from the right. */
static void grouped(int64_t number, char *text, size_t size) {
  char digits[32];
  int length = snprintf(digits, sizeof digits, "%" PRId64, number);
  size_t at = 0;
  for (int i = 0; i < length && at + 2 < size; i++) {
    if (i && (length - i) % 3 == 0) text[at++] = ',';
    text[at++] = digits[i];
  }
  text[at] = '\0';
}

/* Bytes of a layer that a slice keeps until its backward pass: the output and the saved values. */
static double activation_bytes(const struct sl__layer *layer) {
  double bytes = 4.0 * (double)sl_shape_count(&layer->out);
  if (layer->saved.ndim && layer->saved_per_row)
    bytes += (double)sl__type_size(layer->saved_type) * (double)sl_shape_count(&layer->saved);
  return bytes;
}

static double input_bytes(const struct sl_model *model) {
  return 4.0 * (double)sl_shape_count(&model->sample);
}

static void write_bytes(struct row *row, double bytes) {
  snprintf(row->cell[KILOBYTES], sizeof row->cell[KILOBYTES], "%.1f KB", bytes / 1024);
}

static void write_numbers(struct row *row, int64_t parameters, double flops) {
  grouped(parameters, row->cell[PARAMETERS], sizeof row->cell[PARAMETERS]);
  snprintf(row->cell[MFLOP], sizeof row->cell[MFLOP], "%.3f", flops / 1e6);
}

static void write_input(const struct sl_model *model, struct row *row) {
  strcpy(row->cell[LAYER], "input");
  sl_shape_text(&model->sample, row->cell[OUTPUT], sizeof row->cell[OUTPUT]);
  write_bytes(row, input_bytes(model));
}

/* Inputs are named only if they differ from the row above. */
static void write_inputs(const struct sl_model *model, int number, struct row *row) {
  const struct sl__layer *layer = &model->layers[number];
  char *cell = row->cell[INPUTS];
  size_t size = sizeof row->cell[INPUTS], at = 0;
  if (layer->input_count == 1 && layer->input[0] == number - 1) return;
  for (int i = 0; i < layer->input_count && at < size; i++) {
    int input = layer->input[i];
    const char *name = input == SL__INPUT ? "input" : model->layers[input].name;
    at += (size_t)snprintf(cell + at, size - at, "%s%s", i ? "," : "", name);
  }
}

static void write_layer(const struct sl_model *model, int number, struct row *row) {
  const struct sl__layer *layer = &model->layers[number];
  snprintf(row->cell[LAYER], sizeof row->cell[LAYER], "%s", layer->name);
  snprintf(row->cell[KIND], sizeof row->cell[KIND], "%s%s", layer->kind->name,
           layer->is_frozen ? ", frozen" : "");
  write_inputs(model, number, row);
  sl_shape_text(&layer->out, row->cell[OUTPUT], sizeof row->cell[OUTPUT]);
  write_numbers(row, layer->params.total, layer->flops);
  write_bytes(row, activation_bytes(layer));
}

static void write_totals(const struct sl_model *model, struct row *row) {
  double flops = 0, bytes = input_bytes(model);
  for (int i = 0; i < model->count; i++) {
    flops += model->layers[i].flops;
    bytes += activation_bytes(&model->layers[i]);
  }
  strcpy(row->cell[LAYER], "total");
  write_numbers(row, sl_model_parameters(model), flops);
  write_bytes(row, bytes);
}

static void print_row(FILE *out, const struct row *row, const int *widths) {
  for (int c = 0; c < COLUMNS; c++) {
    /* words to the left, numbers to the right */
    int width = c < PARAMETERS ? -widths[c] : widths[c];
    fprintf(out, "%s%*s", c ? "  " : "", width, row->cell[c]);
  }
  fputc('\n', out);
}

static void print_rule(FILE *out, const int *widths) {
  int width = 2 * (COLUMNS - 1);
  for (int c = 0; c < COLUMNS; c++) width += widths[c];
  while (width-- > 0) fputc('-', out);
  fputc('\n', out);
}

static void print_table(FILE *out, const struct row *rows, int count) {
  int widths[COLUMNS] = {0};
  for (int r = 0; r < count; r++)
    for (int c = 0; c < COLUMNS; c++) {
      int length = (int)strlen(rows[r].cell[c]);
      if (length > widths[c]) widths[c] = length;
    }
  for (int r = 0; r < count; r++) {
    print_row(out, &rows[r], widths);
    if (r == 0 || r == count - 2) print_rule(out, widths);
  }
}

static void print_memory(FILE *out, const struct sl_model *model) {
  int64_t buffers = 0, frozen = 0;
  for (int i = 0; i < model->count; i++) {
    buffers += model->layers[i].buffers.total;
    if (model->layers[i].is_frozen) frozen += model->layers[i].params.total;
  }
  fprintf(out, "MFLOP and activations: of a forward pass of one sample, its input included.\n");
  fprintf(out, "Parameters: %.2f MB", (double)sl_model_parameters(model) * 4 / (1 << 20));
  if (frozen)
    fprintf(out, ", %.2f MB of them frozen, the gradient of the others",
            (double)frozen * 4 / (1 << 20));
  else
    fprintf(out, ", their gradient");
  fprintf(out, " as much again for each replica");
  if (buffers) fprintf(out, "; running statistics: %.2f MB", (double)buffers * 4 / (1 << 20));
  fprintf(out, ".\n");
}

enum sl_status sl_model_summary(const struct sl_model *model, char **text) {
  SL__NEEDS(model, text);
  int count = model->count + 3; /* titles, the input, a row a layer, totals */
  struct sl__text summary;
  *text = NULL;
  struct row *rows = sl__alloc((size_t)count, sizeof *rows, "a summary");
  if (!rows) return SL_NO_MEMORY;
  FILE *out = sl__text_begin(&summary);
  for (int c = 0; c < COLUMNS; c++) strcpy(rows[0].cell[c], titles[c]);
  write_input(model, &rows[1]);
  for (int i = 0; i < model->count; i++) write_layer(model, i, &rows[i + 2]);
  write_totals(model, &rows[count - 1]);
  if (out) {
    print_table(out, rows, count);
    print_memory(out, model);
  }
  free(rows);
  return sl__text_end(&summary, "the model's summary", text);
}

int sl_model_layer_count(const struct sl_model *model) {
  SL__NEEDS_OR(0, model);
  return model->count;
}

enum sl_status sl_model_layer(const struct sl_model *model, int i, struct sl_layer_info *info) {
  SL__NEEDS(model, info);
  *info = (struct sl_layer_info){0};
  if (i < 0 || i >= model->count)
    return sl__fail(SL_BAD_ARGUMENT, "layer %d: the model has %d, from 0", i, model->count);
  const struct sl__layer *layer = &model->layers[i];
  *info = (struct sl_layer_info){.name = layer->name,
                                 .kind = layer->kind->name,
                                 .output = layer->out,
                                 .parameters = layer->params.total,
                                 .flops = layer->flops};
  return SL_OK;
}
