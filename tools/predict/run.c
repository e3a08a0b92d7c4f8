/* The run: requests of all inputs, their answers, the summary. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/predict/predict.h"

/* ---- pictures and numbers ---- */

static bool room_for(struct request *request, int64_t n, int64_t inputs, int64_t outputs) {
  if (request->inputs) return true;
  request->inputs = calloc((size_t)(n * inputs), sizeof(float));
  request->outputs = calloc((size_t)(n * outputs), sizeof(float));
  request->origins = calloc((size_t)n, sizeof *request->origins);
  return request->inputs && request->outputs && request->origins;
}

struct filler {
  struct engine *engine;
  struct request_queue *queue;
  struct request *request; /* being filled; NULL: none */
  int64_t most, values;
  bool any; /* samples so far */
};

static int send(struct filler *f) {
  struct request *request = f->request;
  f->request = NULL;
  if (!request || !request->n) return EXIT_DONE;
  return request_queue_send(f->queue, request) ? EXIT_DONE : EXIT_FAILED;
}

/* Every sample of one input; requests go on over several inputs. */
static int fill(struct filler *f, const struct image_options *options, const char *path) {
  struct samples *images = samples_open(options, path);
  int code = images ? EXIT_DONE : EXIT_FAILED;
  while (code == EXIT_DONE) {
    struct request *request = f->request;
    if (!request) {
      request = f->request = request_queue_take(f->queue, 0);
      if (!request) code = EXIT_FAILED_QUIETLY;
      if (request && !room_for(request, f->most, f->values, f->engine->outputs))
        code = fail_memory();
      if (code != EXIT_DONE) break;
      request->predictor = f->engine->predictor;
      request->n = 0;
    }
    float *values = (float *)request->inputs + request->n * f->values;
    if (!samples_next(images, values, &request->origins[request->n], &code)) break;
    f->any = true;
    if (++request->n == f->most) code = send(f);
  }
  samples_close(images);
  return code;
}

/* "state,speed", or those of them that are tokens. */
static void list_inputs(const struct sl_model *model, bool tokens, char *text, size_t size) {
  struct sl_row_field field;
  size_t used = 0;
  for (int i = 0; sl_model_input_field(model, i, &field); i++)
    if (!tokens || field.classes)
      used += (size_t)snprintf(text + used, size - used, "%s%s", used ? "," : "", field.name);
}

static int run_images(struct program *p, struct engine *engine, struct request_queue *queue) {
  int64_t most = p->engine.predictor.max_batch;
  struct filler f = {.engine = engine,
                     .queue = queue,
                     .most = most ? most : 64,
                     .values = sl_shape_count(&engine->input)};
  int code = EXIT_DONE;
  list_inputs(engine->model, false, p->images.inputs, sizeof p->images.inputs);
  list_inputs(engine->model, true, p->images.tokens, sizeof p->images.tokens);
  for (int i = 0; i < p->input_count && code == EXIT_DONE; i++)
    code = fill(&f, &p->images, p->inputs[i]);
  int last = send(&f); /* samples before a failure are answered */
  if (code == EXIT_DONE) code = last;
  if (code == EXIT_DONE && !f.any) /* --skip-bad has named why */
    code = fail(EXIT_FAILED, "no sample is left of the inputs");
  return code;
}

/* ---- text ---- */

static int run_text(struct program *p, struct engine *engine, const struct words *words,
                    struct request_queue *queue) {
  int code = EXIT_DONE;
  for (int i = 0; i < p->input_count && code == EXIT_DONE; i++)
    code = send_lines(engine, &p->text, words, p->inputs[i], queue);
  return code;
}

/* ---- the run ---- */

/* As in the model's metadata: the last dimension that is not 1, of [10] and of [10, 1, 1]. */
static int64_t count_classes(const struct sl_shape *output) {
  int last = output->ndim - 1;
  while (last > 0 && output->dim[last] == 1) last--;
  return output->dim[last];
}

const char *const task_names[] = {"model", "class", "values", "labels", "mask", NULL};

/* An output's kind of answer: by --task, else as the model's file says, else guessed. */
static enum answer choose_answer(const struct program *p, const struct sl_model_notes *notes,
                                 enum sl_task task, const struct sl_shape *shape, bool *guessed) {
  bool planes = shape->ndim == 3 && shape->dim[1] * shape->dim[2] > 1;
  *guessed = false;
  if (p->task) return (enum answer)(p->task - 1);
  switch (task) {
    case SL_TASK_CLASSES: return ANSWER_CLASS;
    case SL_TASK_VALUES: return ANSWER_VALUES;
    case SL_TASK_LABELS: return planes ? ANSWER_MASK : ANSWER_LABELS;
    case SL_TASK_UNKNOWN: break;
  }
  *guessed = !notes->target_channels && !notes->class_count;
  return notes->target_channels ? ANSWER_VALUES : ANSWER_CLASS;
}

static int add_output(const struct program *p, struct printer *printer, enum sl_task task,
                      const struct sl_row_field *field) {
  const struct sl_shape *shape = &field->shape;
  struct output *output = &printer->outputs[printer->output_count++];
  char text[96], name[80] = "";
  bool guessed;
  enum answer answer = choose_answer(p, printer->notes, task, shape, &guessed);
  *output = (struct output){.name = field->name,
                            .answer = answer,
                            .guessed = guessed,
                            .first = field->first,
                            .count = sl_shape_count(shape),
                            .plane = sl_shape_count(shape) / shape->dim[0],
                            .width = shape->dim[shape->ndim - 1],
                            .has_labels = task == SL_TASK_LABELS};
  sl_shape_text(shape, text, sizeof text);
  if (field->name) snprintf(name, sizeof name, "'%s' ", field->name);
  if (output->answer == ANSWER_CLASS && count_classes(shape) != output->count)
    return fail(EXIT_FAILED, "%s: its output %s%s is no list of classes; --task says what it is",
                p->engine.model, name, text);
  if (output->answer == ANSWER_MASK && shape->ndim != 3)
    return fail(EXIT_FAILED, "%s: its output %s%s is no mask [C, H, W]", p->engine.model, name,
                text);
  return EXIT_DONE;
}

/* The model's outputs by name, or its only one. */
static int list_outputs(const struct program *p, const struct engine *engine,
                        struct printer *printer) {
  const struct sl_shape *row = sl_model_output(engine->model);
  struct sl_row_field field = {.shape = *row};
  int code = EXIT_DONE;
  printer->classes = sl_shape_count(row);
  printer->unit = printer->classes / row->dim[0];
  for (int i = 0; code == EXIT_DONE && sl_model_output_field(engine->model, i, &field); i++)
    code = add_output(p, printer, sl_model_output_task(engine->model, i), &field);
  return code == EXIT_DONE && !printer->output_count
             ? add_output(p, printer, printer->notes->task, &field)
             : code;
}

/* The first option given that is of samples, not of text; else NULL. */
static const char *sample_option(const struct program *p) {
  return p->images.labels       ? "--labels"
         : p->images.validation ? "--validation"
         : p->images.fold       ? "--fold"
         : p->normalize         ? "--normalize"
         : p->mean.count        ? "--mean"
         : p->deviation.count   ? "--deviation"
                                : NULL;
}

static int check_language(const struct program *p, const struct engine *engine) {
  char text[96];
  const struct sl_shape *output = sl_model_output(engine->model);
  sl_shape_text(output, text, sizeof text);
  if (engine->tokens && (output->ndim != 2 || output->dim[1] != engine->words))
    return fail(EXIT_FAILED, "%s: its output %s is not a choice of %lld words for each token",
                p->engine.model, text, (long long)engine->words);
  if (engine->tokens && p->task)
    return fail(EXIT_USAGE, "--task: %s is a language model", p->engine.model);
  const char *option = sample_option(p);
  if (engine->tokens && option)
    return fail(EXIT_USAGE, "%s: %s is a language model", option, p->engine.model);
  bool text_wanted = p->images.format == FORMAT_TEXT || p->images.format == FORMAT_TOKENS;
  if (engine->tokens && p->images.format != FORMAT_AUTO && !text_wanted)
    return fail(EXIT_USAGE, "--format: %s is a language model: it reads text and tokens",
                p->engine.model);
  if (!engine->tokens && text_wanted)
    return fail(EXIT_USAGE, "--format: %s is no language model: it reads no text", p->engine.model);
  return EXIT_DONE;
}

/* Number of requests in flight: enough for all devices, within a memory budget. */
static int count_requests(const struct program *p, const struct engine *engine) {
  const int64_t budget = 256 << 20;
  int workers = sl_worker_count(engine->context);
  int64_t most = p->engine.predictor.max_batch ? p->engine.predictor.max_batch : 64;
  int64_t batches = p->engine.predictor.batches ? p->engine.predictor.batches : 2 * workers;
  int64_t wanted = engine->tokens ? most * batches : batches + 2;
  if (engine->tokens) return (int)(wanted < 256 ? wanted : 256); /* the queue limits the memory */
  int64_t bytes = 4 * most * (sl_shape_count(&engine->input) + engine->outputs);
  int64_t fits = budget / bytes;
  if (fits < 3) fits = 3;
  return (int)(wanted < fits ? wanted : fits);
}

static void print_summary(const struct printer *done, bool text, double seconds) {
  double rate = (double)done->samples / (seconds > 0 ? seconds : 1e-9);
  const char *what = text ? "lines" : "samples";
  fprintf(stderr, "%lld %s", (long long)done->samples, what);
  if (text)
    fprintf(stderr, ", %lld tokens, perplexity %.3f", (long long)done->tokens,
            exp(-done->log_likelihood / (double)(done->tokens ? done->tokens : 1)));
  if (done->labelled == done->samples && done->labelled)
    fprintf(stderr, ", accuracy %.4f", (double)done->right / (double)done->labelled);
  else if (done->labelled)
    fprintf(stderr, ", accuracy %.4f of %lld with labels",
            (double)done->right / (double)done->labelled, (long long)done->labelled);
  fprintf(stderr, ", %.0f %s/s\n", rate, what);
}

/* What the model's file did not say. After the answers: a failure is one line. */
static void print_remarks(const struct program *p, const struct printer *printer) {
  const struct preparation *how = &p->images.preparation;
  if (!how->pictures && !how->notes->channels && p->images.format != FORMAT_RAW)
    remark(
        "%s does not say how its inputs were normalised; numbers are taken as they are; --mean "
        "and --deviation, or --normalize none, say how",
        p->engine.model);
  for (int i = 0; i < printer->output_count; i++) {
    const char *name = printer->outputs[i].name;
    if (printer->outputs[i].guessed)
      remark(
          "%s does not say what its output%s%s is; taken as logits of classes; --task says "
          "otherwise",
          p->engine.model, name ? " " : "", name ? name : "");
  }
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

int answer(struct program *p, struct engine *engine) {
  struct words words = {0};
  struct printer printer = {.notes = sl_model_notes(engine->model),
                            .classes = engine->words,
                            .top = p->top,
                            .logits = p->logits};
  struct request_queue *queue = NULL;
  double begun = now();
  int code = check_language(p, engine);
  if (code == EXIT_DONE && !engine->tokens) code = list_outputs(p, engine, &printer);
  if (code == EXIT_DONE)
    code = engine->tokens ? words_open(&p->text, engine, &words) : choose_normalization(p, engine);
  if (code == EXIT_DONE && !engine->tokens) code = engine_predictor(engine);
  printer.vocabulary = words.vocabulary;
  printer.tokenizer = words.tokenizer;
  if (printer.top > printer.classes) printer.top = (int)printer.classes;
  if (code == EXIT_DONE) {
    printer.probabilities = calloc((size_t)printer.classes, sizeof *printer.probabilities);
    queue = printer.probabilities
                ? request_queue_open(count_requests(p, engine),
                                     engine->tokens ? print_line : print_images, &printer)
                : NULL;
    code = queue ? EXIT_DONE : fail_memory();
  }
  if (queue) {
    code = engine->tokens ? run_text(p, engine, &words, queue) : run_images(p, engine, queue);
    int end = request_queue_close(queue);
    /* the end of the output's reader hides no other failure */
    if (code == EXIT_DONE || code == EXIT_FAILED_QUIETLY) code = end != EXIT_DONE ? end : code;
  }
  if (code == EXIT_DONE) code = flush_output();
  if (code == EXIT_DONE && !p->quiet && !engine->tokens) print_remarks(p, &printer);
  if (code == EXIT_DONE && !p->quiet) print_summary(&printer, engine->tokens, now() - begun);
  free(printer.probabilities);
  words_close(&words);
  return code;
}
