# The trainers, installed; and programs to begin one's own from.
trainers = examples/gpt examples/lenet examples/lstm_lm examples/mlp examples/resnet
bin_PROGRAMS += $(trainers)
trainer_libs = tools/libtrain.la tools/libcommon.la libstarling.la $(JANSSON_LIBS) -lm
examples_gpt_SOURCES = examples/gpt.c examples/gpt_model.c examples/gpt_model.h \
	examples/gpt_hugging_face.c examples/gpt_hugging_face.h
examples_gpt_LDADD = $(trainer_libs)
examples_gpt_LDFLAGS = $(installed_ldflags)
examples_lenet_LDADD = $(trainer_libs)
examples_lenet_LDFLAGS = $(installed_ldflags)
examples_lstm_lm_LDADD = $(trainer_libs)
examples_lstm_lm_LDFLAGS = $(installed_ldflags)
examples_mlp_LDADD = $(trainer_libs)
examples_mlp_LDFLAGS = $(installed_ldflags)
examples_resnet_SOURCES = examples/resnet.c examples/resnet_model.c examples/resnet_model.h
examples_resnet_LDADD = $(trainer_libs)
examples_resnet_LDFLAGS = $(installed_ldflags)

# these build with pkg-config alone
to_begin_from = examples/custom_layer examples/finetune examples/forecast examples/kvstore \
	examples/predict examples/surrogate examples/unet
noinst_PROGRAMS += $(to_begin_from)
examples_custom_layer_LDADD = libstarling.la
examples_finetune_LDADD = libstarling.la
examples_forecast_LDADD = libstarling.la -lm
examples_kvstore_LDADD = libstarling.la
examples_predict_LDADD = libstarling.la
examples_surrogate_LDADD = libstarling.la -lm
examples_unet_LDADD = libstarling.la
