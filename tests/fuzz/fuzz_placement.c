/* A placement's text, for a model of some layers and groups: what parses places every layer. The
 * same text as a list of frozen layers and as factors of layers. */
#include "core/runtime/context.h"
#include "nn/layer.h"
#include "parallel/step/grid.h"
#include "tests/fuzz/fuzz.h"

static const char layers[] =
    "{\"format\": \"starling model\", \"version\": 1, \"input\": [7], \"layers\": ["
    "{\"name\": \"embed\", \"kind\": \"embedding\", \"inputs\": [\"input\"], \"vocabulary\": 11,"
    " \"features\": 6},"
    "{\"name\": \"lstm0\", \"kind\": \"lstm\", \"inputs\": [\"embed\"], \"features\": 8},"
    "{\"name\": \"lstm1\", \"kind\": \"lstm\", \"inputs\": [\"lstm0\"], \"features\": 8},"
    "{\"name\": \"lstm2\", \"kind\": \"lstm\", \"inputs\": [\"lstm1\"], \"group\": \"g\","
    " \"features\": 6},"
    "{\"name\": \"decoder\", \"kind\": \"dense\", \"inputs\": [\"lstm2\"], \"group\": \"g\","
    " \"features\": 11, \"shares\": \"embed\", \"positions\": true}]}";

static struct sl_model *small_model(void) {
  static struct sl_context context; /* nothing is built, so StarPU need not run */
  static struct sl_model *model;
  if (!model && sl_model_parse(&context, "layers", layers, strlen(layers), &model) != SL_OK)
    abort();
  return model;
}

FUZZER(placement)(const uint8_t *bytes, size_t size) {
  struct sl_model *model = small_model();
  char *text = fuzz_text(bytes, size);
  struct sl__placement placement;
  if (sl__placement_parse(model, text, &placement) == SL_OK) {
    for (int i = 0; i < model->count; i++)
      if (placement.stage[i] < 0 || placement.stage[i] >= placement.stages) abort();
    for (int s = 0; s < placement.stages; s++)
      if (placement.device_count[s] < 1 || placement.rank[s] < 0 ||
          placement.rank[s] >= placement.ranks)
        abort();
    sl__placement_clear(&placement);
  }
  if (sl_freeze(model, text) == SL_OK && sl_frozen(model) &&
      sl_freeze(model, sl_frozen(model)) != SL_OK)
    abort();
  if (sl_group_rate(model, text) == SL_OK)
    for (int i = 0; i < model->count; i++)
      if (!(model->layers[i].lr_factor > 0)) abort();
  free(text);
  return 0;
}
