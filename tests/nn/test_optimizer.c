/* Optimizers' settings: names, defaults, and one clear message for each field out of range. */
#include <math.h>

#include "nn/optimizer.h"
#include "tests/common/small_model.h"

static void names_are_parsed(void **state) {
  (void)state;
  struct sl_optimizer o = {.lr = 7, .clip = 7}; /* parsing starts from the zero value */
  OK(sl_optimizer_parse("sgd", &o));
  assert_int_equal(o.kind, SL_SGD);
  assert_true(o.lr == 0 && o.clip == 0 && !o.nesterov);
  OK(sl_optimizer_parse("nag", &o));
  assert_int_equal(o.kind, SL_SGD);
  assert_true(o.nesterov && o.momentum == 0.9f);
  OK(sl_optimizer_parse("adam", &o));
  assert_int_equal(o.kind, SL_ADAM);
  OK(sl_optimizer_parse("adamw", &o));
  assert_int_equal(o.kind, SL_ADAMW);
  OK(sl_optimizer_parse("lamb", &o));
  assert_int_equal(o.kind, SL_LAMB);
}

/* Every name of the table is parsed, and its defaults pass the check. */
static void all_names_are_listed(void **state) {
  (void)state;
  int count = 0;
  for (const char *name; (name = sl_optimizer_name(count)); count++) {
    struct sl_optimizer o;
    OK(sl_optimizer_parse(name, &o));
    OK(sl_optimizer_check(&o));
    assert_true(o.lr > 0);
  }
  assert_true(count >= 4);
  assert_string_equal(sl_optimizer_name(0), "sgd");
  assert_null(sl_optimizer_name(-1));
}

static void unknown_names_are_refused(void **state) {
  (void)state;
  const char *const unknown[] = {"", "SGD", "sgd ", "adam,sgd", "lambs"};
  for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
    struct sl_optimizer o = {.lr = 7};
    FAILS(sl_optimizer_parse(unknown[i], &o), SL_BAD_ARGUMENT, "sgd, nag, adam");
    assert_true(o.lr == 7);
  }
}

static void defaults_are_filled_in(void **state) {
  (void)state;
  struct sl_optimizer sgd = {0}, adam = {.kind = SL_ADAM}, adamw = {.kind = SL_ADAMW, .lr = 0.5f},
                      lamb = {.kind = SL_LAMB};
  for (int again = 0; again < 2; again++) { /* a checked one passes a second check unchanged */
    OK(sl_optimizer_check(&sgd));
    OK(sl_optimizer_check(&adam));
    OK(sl_optimizer_check(&adamw));
    assert_true(sgd.lr == 0.01f && sgd.momentum == 0 && sgd.weight_decay == 0 && sgd.clip == 0);
    assert_true(adam.lr == 0.001f && adam.beta1 == 0.9f && adam.beta2 == 0.999f);
    assert_true(adam.epsilon == 1e-8f && adam.weight_decay == 0);
    assert_true(adamw.lr == 0.5f && adamw.beta1 == 0.9f);
    OK(sl_optimizer_check(&lamb));
    assert_true(lamb.lr == 0.001f && lamb.beta2 == 0.999f && lamb.epsilon == 1e-6f);
  }
}

static void every_field_is_checked(void **state) {
  (void)state;
  const struct {
    struct sl_optimizer optimizer;
    const char *words;
  } bad[] = {{{.lr = -0.1f}, "lr"},
             {{.lr = NAN}, "lr"},
             {{.lr = INFINITY}, "lr"},
             {{.momentum = -0.5f}, "momentum"},
             {{.momentum = 1.0f}, "momentum"},
             {{.momentum = NAN}, "momentum"},
             {{.nesterov = true}, "nesterov"},
             {{.weight_decay = -1e-4f}, "weight_decay"},
             {{.weight_decay = INFINITY}, "weight_decay"},
             {{.clip = -1}, "clip"},
             {{.clip = NAN}, "clip"},
             {{.average = 1}, "average"},
             {{.average = -0.1f}, "average"},
             {{.beta1 = 0.9f}, "not for sgd"},
             {{.kind = SL_ADAM, .momentum = 0.9f}, "momentum"},
             {{.kind = SL_ADAMW, .nesterov = true}, "nesterov"},
             {{.kind = SL_ADAM, .beta1 = 1.0f}, "beta1"},
             {{.kind = SL_ADAM, .beta1 = -0.1f}, "beta1"},
             {{.kind = SL_ADAM, .beta2 = 1.5f}, "beta2"},
             {{.kind = SL_ADAM, .epsilon = -1e-8f}, "epsilon"},
             {{.kind = SL_ADAM, .epsilon = INFINITY}, "epsilon"},
             {{.kind = SL_RMSPROP, .momentum = 0.9f}, "momentum"},
             {{.kind = SL_RMSPROP, .beta1 = 0.9f}, "beta1"},
             {{.kind = SL_ADAGRAD, .beta2 = 0.9f}, "beta2"},
             {{.kind = SL_LION, .epsilon = 1e-8f}, "epsilon"},
             {{.kind = SL_LAMB, .momentum = 0.9f}, "momentum"},
             {{.kind = SL_LAMB, .beta2 = 1}, "beta2"},
             {{.kind = (enum sl_optimizer_kind)17}, "17"}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    struct sl_optimizer o = bad[i].optimizer;
    FAILS(sl_optimizer_check(&o), SL_BAD_ARGUMENT, bad[i].words);
    assert_true(o.lr == bad[i].optimizer.lr || isnan(o.lr)); /* nothing was filled in */
    assert_true(o.epsilon == bad[i].optimizer.epsilon);
  }
}

/* Ranks compare these texts: settings that differ in one bit have two. */
static void texts_tell_all_settings_apart(void **state) {
  (void)state;
  struct sl_optimizer one = {.kind = SL_ADAM, .lr = 0.1f, .beta1 = 0.9f}, other = one;
  char texts[2][SL__OPTIMIZER_TEXT];
  assert_string_equal(sl__optimizer_text(&one, texts[0]), "adam, lr 0.1, beta1 0.9");
  other.lr = nextafterf(0.1f, 1);
  assert_string_not_equal(texts[0], sl__optimizer_text(&other, texts[1]));
  other.lr = 0.1f;
  other.beta1 = nextafterf(0.9f, 1);
  assert_string_not_equal(texts[0], sl__optimizer_text(&other, texts[1]));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(names_are_parsed),          cmocka_unit_test(all_names_are_listed),
      cmocka_unit_test(unknown_names_are_refused), cmocka_unit_test(defaults_are_filled_in),
      cmocka_unit_test(every_field_is_checked),    cmocka_unit_test(texts_tell_all_settings_apart)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
