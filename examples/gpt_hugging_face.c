#include "examples/gpt_hugging_face.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- config.json ---- */

enum { MOST_PATH = 4096 };

const char *gpt_folder_file(const char *folder, int index, char *path, size_t size) {
  static const char *const names[GPT_FOLDER_FILES] = {"config.json", "model.safetensors"};
  size_t length = strlen(folder);
  const char *slash = length && folder[length - 1] == '/' ? "" : "/";
  snprintf(path, size, "%s%s%s", folder, slash, names[index]);
  return path;
}

static const char *path_of(const char *folder, char path[MOST_PATH]) {
  return gpt_folder_file(folder, 0, path, MOST_PATH);
}

/* A config.json that is being read: the first thing that is wrong with it is kept. */
struct config {
  char path[MOST_PATH];
  json_t *root;
  char problem[MOST_PATH + 300];
};

static void refuse(struct config *c, const char *format, ...) SL_PRINTF(2, 3);
static void refuse(struct config *c, const char *format, ...) {
  va_list list;
  if (*c->problem) return;
  int length = snprintf(c->problem, sizeof c->problem, "%s: ", c->path);
  va_start(list, format);
  vsnprintf(c->problem + length, sizeof c->problem - (size_t)length, format, list);
  va_end(list);
}

/* NULL where there is none, or null. */
static const json_t *member(const struct config *c, const char *key) {
  const json_t *value = json_object_get(c->root, key);
  return json_is_null(value) ? NULL : value;
}

/* usual: what the program that wrote the file takes where it says nothing; transformers leaves
 * such members out. */
static int64_t whole(struct config *c, const char *key, int64_t usual) {
  const json_t *value = member(c, key);
  int64_t number = value ? (int64_t)json_integer_value(value) : usual;
  if (value && (!json_is_integer(value) || number < 1 || number > INT32_MAX))
    refuse(c, "\"%s\" must be a whole number from 1 to %d", key, INT32_MAX);
  return number;
}

static double real(struct config *c, const json_t *object, const char *key, double usual) {
  const json_t *value = json_object_get(object, key);
  double number = json_is_number(value) ? json_number_value(value) : usual;
  if ((value && !json_is_number(value) && !json_is_null(value)) || !(number > 0) ||
      !isfinite((float)number))
    refuse(c, "\"%s\" must be a number above 0", key);
  return number;
}

static bool flag(struct config *c, const char *key, bool usual) {
  const json_t *value = member(c, key);
  if (value && !json_is_boolean(value)) refuse(c, "\"%s\" must be true or false", key);
  return value ? json_is_true(value) : usual;
}

/* A setting that the layers have in one way only. */
static void needs_flag(struct config *c, const char *key, bool wanted) {
  if (flag(c, key, wanted) != wanted)
    refuse(c, "\"%s\" is %s; such models are not supported", key, wanted ? "false" : "true");
}

static void needs_text(struct config *c, const char *key, const char *wanted, const char *also) {
  const json_t *value = member(c, key);
  const char *text = json_string_value(value);
  if (!value || (text && (!strcmp(text, wanted) || !strcmp(text, also)))) return;
  refuse(c, "\"%s\" is \"%.40s\"; models with \"%s\" are supported", key, text ? text : "?",
         wanted);
}

static void read_gpt2(struct config *c, struct gpt_options *o) {
  *o = (struct gpt_options){
      .style = GPT_STYLE_GPT2,
      .layers = whole(c, "n_layer", 12),
      .heads = whole(c, "n_head", 12),
      .width = whole(c, "n_embd", 768),
      .context = whole(c, member(c, "n_positions") ? "n_positions" : "n_ctx", 1024),
      .vocabulary = whole(c, "vocab_size", 50257),
      .epsilon = (float)real(c, c->root, "layer_norm_epsilon", 1e-5),
      .own_head = !flag(c, "tie_word_embeddings", true)};
  o->ffn = whole(c, "n_inner", 4 * o->width);
  needs_text(c, "activation_function", "gelu_new", "gelu_pytorch_tanh");
  needs_flag(c, "scale_attn_weights", true);
  needs_flag(c, "scale_attn_by_inverse_layer_idx", false);
  needs_flag(c, "add_cross_attention", false);
}

/* Rotary positions that are stretched for longer texts are of other kinds. */
static double read_rope(struct config *c) {
  static const char *const members[] = {"rope_parameters", "rope_scaling"};
  double base = real(c, c->root, "rope_theta", 10000);
  for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
    const json_t *rope = member(c, members[i]);
    const json_t *kind = json_object_get(rope, "rope_type");
    if (!kind) kind = json_object_get(rope, "type");
    if (!rope) continue;
    if (!json_is_object(rope) ||
        (kind && strcmp(json_is_string(kind) ? json_string_value(kind) : "", "default") != 0))
      refuse(c, "\"%s\" is of kind \"%.40s\"; rotary positions of kind \"default\" are supported",
             members[i], json_is_string(kind) ? json_string_value(kind) : "?");
    base = real(c, rope, "rope_theta", base);
  }
  return base;
}

static void read_llama(struct config *c, struct gpt_options *o) {
  *o = (struct gpt_options){.style = GPT_STYLE_LLAMA,
                            .layers = whole(c, "num_hidden_layers", 32),
                            .heads = whole(c, "num_attention_heads", 32),
                            .width = whole(c, "hidden_size", 4096),
                            .ffn = whole(c, "intermediate_size", 11008),
                            .context = whole(c, "max_position_embeddings", 2048),
                            .vocabulary = whole(c, "vocab_size", 32000),
                            .epsilon = (float)real(c, c->root, "rms_norm_eps", 1e-6),
                            .rope_base = (float)read_rope(c),
                            .tied = flag(c, "tie_word_embeddings", false)};
  o->kv_heads = whole(c, "num_key_value_heads", o->heads);
  if (o->heads && whole(c, "head_dim", o->width / o->heads) != o->width / o->heads)
    refuse(c,
           "\"head_dim\" is not \"hidden_size\" divided by \"num_attention_heads\"; such models "
           "are not supported");
  needs_text(c, "hidden_act", "silu", "swish");
  needs_flag(c, "attention_bias", false);
  needs_flag(c, "mlp_bias", false);
}

static void check_heads(struct config *c, const struct gpt_options *o) {
  if (o->heads < 1 || o->width % o->heads)
    refuse(c, "%" PRId64 " heads do not divide %" PRId64 " values", o->heads, o->width);
  if (o->kv_heads && o->heads % o->kv_heads)
    refuse(c, "%" PRId64 " heads of keys and values do not divide %" PRId64 " heads", o->kv_heads,
           o->heads);
  if (o->layers > 1000) refuse(c, "%" PRId64 " layers are more than 1000", o->layers);
}

static void read_model(struct config *c, struct gpt_options *options) {
  const char *kind = json_string_value(member(c, "model_type"));
  if (kind && !strcmp(kind, "gpt2"))
    read_gpt2(c, options);
  else if (kind && !strcmp(kind, "llama"))
    read_llama(c, options);
  else if (kind)
    refuse(c, "models of the type \"%.40s\" are not supported; gpt2 and llama are", kind);
  else
    refuse(c, "has no \"model_type\"; is it a model's folder?");
  check_heads(c, options);
}

const char *gpt_read_config(const char *folder, struct gpt_options *options) {
  static struct config c;
  json_error_t error;
  *c.problem = '\0';
  *options = (struct gpt_options){0};
  c.root = json_load_file(path_of(folder, c.path), JSON_REJECT_DUPLICATES, &error);
  if (!c.root)
    refuse(&c, "%s", error.text);
  else
    read_model(&c, options);
  json_decref(c.root);
  return *c.problem ? c.problem : NULL;
}

/* ---- the tensors' names ---- */

enum { RULES_A_LAYER = 12, RULES_BESIDE = 8, MOST_NAMES = 256 };

struct table {
  struct sl_weight_rule *rules;
  char (*texts)[MOST_NAMES]; /* two a rule */
  int count;
};

static bool table_new(struct table *t, int64_t layers) {
  size_t most = (size_t)(layers * RULES_A_LAYER + RULES_BESIDE);
  *t = (struct table){calloc(most, sizeof *t->rules), calloc(2 * most, sizeof *t->texts), 0};
  return t->rules && t->texts;
}

static void table_free(struct table *t) {
  free(t->rules);
  free(t->texts);
}

static struct sl_weight_rule *add(struct table *t, const char *parameter, const char *tensors) {
  char *const texts[] = {t->texts[2 * t->count], t->texts[2 * t->count + 1]};
  struct sl_weight_rule *rule = &t->rules[t->count++];
  if (parameter) snprintf(texts[0], MOST_NAMES, "%s", parameter);
  snprintf(texts[1], MOST_NAMES, "%s", tensors);
  *rule = (struct sl_weight_rule){.parameter = parameter ? texts[0] : NULL, .tensors = texts[1]};
  return rule;
}

/* Of block i: "h3.fc.weight" from "[transformer.]h.3.mlp.c_fc.weight"; names may be several. */
static struct sl_weight_rule *add_block(struct table *t, int64_t i, const char *beginning,
                                        const char *layer, const char *const *names,
                                        const char *part) {
  char parameter[64], tensors[MOST_NAMES] = "";
  snprintf(parameter, sizeof parameter, "h%" PRId64 ".%s.%s", i, layer, part);
  for (size_t length; *names; names++) {
    length = strlen(tensors);
    snprintf(tensors + length, sizeof tensors - length, "%s%s.%" PRId64 ".%s.%s", length ? "," : "",
             beginning, i, *names, part);
  }
  return add(t, parameter, tensors);
}

#define NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})

/* Its linear layers are [inputs, outputs] (Conv1D). */
static void add_gpt2_block(struct table *t, int64_t i) {
  static const struct {
    const char *layer, *name;
    bool transposed;
  } rows[] = {
      {"ln1", "ln_1", false}, {"qkv", "attn.c_attn", true}, {"projection", "attn.c_proj", true},
      {"ln2", "ln_2", false}, {"fc", "mlp.c_fc", true},     {"out", "mlp.c_proj", true}};
  for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
    const char *const *names = NAMES(rows[k].name);
    add_block(t, i, "[transformer.]h", rows[k].layer, names, "weight")->transposed =
        rows[k].transposed;
    add_block(t, i, "[transformer.]h", rows[k].layer, names, "bias");
  }
}

static void add_gpt2(struct table *t, const struct gpt_options *o) {
  add(t, "wte.weight", "[transformer.]wte.weight");
  add(t, "wpe.weight", "[transformer.]wpe.weight");
  for (int64_t i = 0; i < o->layers; i++) add_gpt2_block(t, i);
  add(t, "lnf.weight", "[transformer.]ln_f.weight");
  add(t, "lnf.bias", "[transformer.]ln_f.bias");
  add(t, "head.weight", "lm_head.weight");
  add(t, NULL, "*.attn.bias"); /* the causal mask, in old files */
  add(t, NULL, "*.attn.masked_bias");
}

static void add_llama_block(struct table *t, int64_t i, const struct gpt_options *o) {
  const char *const in = "[model.]layers", *const part = "weight";
  const int64_t head = o->width / o->heads, kv_heads = o->kv_heads ? o->kv_heads : o->heads;
  add_block(t, i, in, "ln1", NAMES("input_layernorm"), part);
  struct sl_weight_rule *qkv = add_block(
      t, i, in, "qkv", NAMES("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), part);
  qkv->sizes[0] = o->heads * head;
  qkv->sizes[1] = qkv->sizes[2] = kv_heads * head;
  add_block(t, i, in, "projection", NAMES("self_attn.o_proj"), part);
  add_block(t, i, in, "ln2", NAMES("post_attention_layernorm"), part);
  add_block(t, i, in, "fc", NAMES("mlp.gate_proj", "mlp.up_proj"), part);
  add_block(t, i, in, "out", NAMES("mlp.down_proj"), part);
}

static void add_llama(struct table *t, const struct gpt_options *o) {
  add(t, "wte.weight", "[model.]embed_tokens.weight");
  for (int64_t i = 0; i < o->layers; i++) add_llama_block(t, i, o);
  add(t, "lnf.weight", "[model.]norm.weight");
  add(t, "head.weight", "lm_head.weight");
  add(t, NULL, "*.rotary_emb.inv_freq"); /* in old files */
}

static bool make_table(struct table *t, const struct gpt_options *options) {
  if (!table_new(t, options->layers)) return false;
  if (options->style == GPT_STYLE_GPT2)
    add_gpt2(t, options);
  else
    add_llama(t, options);
  return true;
}

enum sl_status gpt_load_folder(struct sl_model *model, const char *folder,
                               const struct gpt_options *options) {
  struct table table;
  enum sl_status status = SL_NO_MEMORY;
  if (make_table(&table, options))
    status = sl_model_load_tensors(model, folder, table.rules, table.count, NULL);
  table_free(&table);
  return status;
}

/* ---- saving ---- */

/* 1e-05, not 9.99999974737875e-06 */
static double short_number(float value) {
  char text[32];
  snprintf(text, sizeof text, "%.7g", (double)value);
  return strtod(text, NULL);
}

static json_t *gpt2_json(const struct gpt_options *o) {
  const double dropout = short_number(o->dropout);
  return json_pack("{s:[s], s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:s, s:b, s:f, s:f, s:f}",
                   "architectures", "GPT2LMHeadModel", "model_type", "gpt2", "n_layer",
                   (json_int_t)o->layers, "n_head", (json_int_t)o->heads, "n_embd",
                   (json_int_t)o->width, "n_inner", (json_int_t)gpt_inner_width(o), "n_positions",
                   (json_int_t)o->context, "vocab_size", (json_int_t)o->vocabulary,
                   "layer_norm_epsilon", short_number(o->epsilon > 0 ? o->epsilon : 1e-5f),
                   "activation_function", "gelu_new", "tie_word_embeddings", !o->own_head,
                   "attn_pdrop", dropout, "embd_pdrop", dropout, "resid_pdrop", dropout);
}

static json_t *llama_json(const struct gpt_options *o) {
  const double base = short_number(o->rope_base > 0 ? o->rope_base : 10000);
  return json_pack(
      "{s:[s], s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:s, s:b, s:b, s:b, s:f, s:f,"
      " s:{s:s, s:f}}",
      "architectures", "LlamaForCausalLM", "model_type", "llama", "num_hidden_layers",
      (json_int_t)o->layers, "num_attention_heads", (json_int_t)o->heads, "num_key_value_heads",
      (json_int_t)(o->kv_heads ? o->kv_heads : o->heads), "head_dim",
      (json_int_t)(o->width / o->heads), "hidden_size", (json_int_t)o->width, "intermediate_size",
      (json_int_t)gpt_inner_width(o), "max_position_embeddings", (json_int_t)o->context,
      "vocab_size", (json_int_t)o->vocabulary, "rms_norm_eps",
      short_number(o->epsilon > 0 ? o->epsilon : 1e-5f), "hidden_act", "silu", "attention_bias", 0,
      "mlp_bias", 0, "tie_word_embeddings", o->tied, "attention_dropout", short_number(o->dropout),
      "rope_theta", base, "rope_parameters", "rope_type", "default", "rope_theta", base);
}

/* Members of this configuration replace those of the other one; all weights are f32. */
static json_t *config_json(const char *like, const struct gpt_options *options) {
  char path[MOST_PATH];
  json_t *config = like ? json_load_file(path_of(like, path), 0, NULL) : NULL;
  json_t *own = options->style == GPT_STYLE_GPT2 ? gpt2_json(options) : llama_json(options);
  if (!config) config = json_object();
  const char *type = json_object_get(config, "dtype") ? "dtype" : "torch_dtype";
  /* GPT-2's numbers of special tokens would be taken for this vocabulary's */
  if (!like) json_object_set_new(own, "bos_token_id", json_null());
  if (!like) json_object_set_new(own, "eos_token_id", json_null());
  bool whole = own && json_object_update(config, own) == 0 &&
               json_object_set_new(config, type, json_string("float32")) == 0;
  json_decref(own);
  if (whole) return config;
  json_decref(config);
  return NULL;
}

static enum sl_status write_config(const char *folder, const char *like,
                                   const struct gpt_options *options) {
  char path[MOST_PATH];
  json_t *config = config_json(like, options);
  char *text = config ? json_dumps(config, JSON_INDENT(2)) : NULL;
  enum sl_status status = SL_NO_MEMORY;
  if (text) status = sl_file_write(path_of(folder, path), text, strlen(text));
  free(text);
  json_decref(config);
  return status;
}

enum sl_status gpt_save_folder(struct sl_model *model, const char *folder, const char *like,
                               const struct gpt_options *options) {
  struct table table;
  enum sl_status status = sl_folder_make(folder);
  if (status != SL_OK) return status;
  status = SL_NO_MEMORY;
  if (make_table(&table, options))
    status = sl_model_save_tensors(model, folder, table.rules, table.count);
  table_free(&table);
  return status == SL_OK ? write_config(folder, like, options) : status;
}
