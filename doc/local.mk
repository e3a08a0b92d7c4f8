dist_man1_MANS = doc/lenet.1
