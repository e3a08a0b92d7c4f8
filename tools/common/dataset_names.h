/* The datasets that the library knows (data/readers.def), for the texts of options. */
#ifndef SL_TOOLS_COMMON_DATASET_NAMES_H
#define SL_TOOLS_COMMON_DATASET_NAMES_H

/* Name i, from 0, of the generated sets ("digits"); NULL behind the last. */
const char *generated_dataset(int i);

/* Name i, from 0, of the formats that are folders of files ("MNIST"); NULL behind the last. */
const char *folder_dataset(int i);

/* The files of format i, from 0, of users' own data (".csv or .tsv"); NULL behind the last. */
const char *own_dataset(int i);

#endif
