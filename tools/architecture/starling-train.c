/* starling-train: trains the model of an architecture file. */
#include <stdlib.h>

#include "tools/architecture/architecture.h"
#include "tools/architecture/text.h"
#include "tools/train/run.h"

static enum sl_status open_model(struct sl_context *context, enum sl_init init, const void *input,
                                 struct sl_model **model) {
  return architecture_open(context, ((const struct text_model *)input)->model, init, model);
}

static enum sl_status open_data(const struct cli *cli, void *input, struct sl_dataset **train,
                                struct sl_dataset **test) {
  return text_open_data(cli, input, train, test);
}

static bool takes_text(const void *input) { return text_is_taken(input); }

static enum sl_status save(const char *path, const void *input) { return text_save(input, path); }

/* ---- the program's own options ---- */

static const char *list_kinds(const struct option_row *row, const char *text, void *values) {
  (void)row, (void)text, (void)values;
  kind_list_print();
  exit(finish_output("starling-train", EXIT_DONE));
}

static const char *const levels[] = {[SL_TEXT_WORD] = "word", [SL_TEXT_CHAR] = "char", NULL};

static const struct option_row rows[] = {
    {"model", "FILE",
     "The architecture file (.json, doc/models.md; or .onnx). The first word that is no option "
     "names it, too",
     OPTION_FIELD(struct text_model, model), .least = 1,
     .flags = OPTION_OWN | OPTION_READS | OPTION_WEIGHTS},
    {"level", "NAME",
     "Texts, for a model whose first layer is an embedding: kind of the tokens, word or char",
     OPTION_FIELD(struct text_model, level), .names = levels, .flags = OPTION_OWN},
    {"list", NULL, "Print all kinds of layers with their keys, shapes and defaults, and end",
     .parse = list_kinds}};

static const char *check(void *input) {
  return ((const struct text_model *)input)->model ? NULL : "no model is named; see --help";
}

int main(int argc, char **argv) {
  struct text_model model = {0};
  const struct program program = {
      .cli = {.usage = "MODEL.json",
              .argument = "model",
              .about = "Train the model of an architecture file.",
              .description =
                  "MODEL.json describes a network layer by layer; --list prints all kinds of "
                  "layers and their keys. Its \"input\" is the shape of one sample; its last layer "
                  "has an output for each class, or the shape of the targets. A file that names "
                  "\"weights\", as --save writes it, or an .onnx file, goes on from these "
                  "weights.",
              .examples =
                  "  starling-train --list\n"
                  "  starling-train net.json --data table.csv --target y --save trained.json\n"
                  "  starling-train trained.json --data more.csv --target y --lr 0.001\n",
              .rows = rows,
              .row_count = sizeof rows / sizeof *rows,
              .input = &model,
              .check = check,
              .beside = text_beside},
      .epochs = 10,
      .batch = 64,
      .lr = 0.05f,
      .momentum = 0.9f,
      .open_model = open_model,
      .open_data = open_data,
      .takes_text = takes_text,
      .save = save};
  int code = run_program(&program, argc, argv);
  sl_vocabulary_free(model.vocabulary);
  return code;
}
