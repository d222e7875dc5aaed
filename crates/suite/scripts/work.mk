# Eight programs, compiled, linked and run side by side (make -j4); objects and outputs are compared.
NAMES := 1 2 3 4 5 6 7 8
all: $(NAMES:%=part-%.txt)
part-%.o: input/part-%.c
	gcc -O1 -c -o $@ $<
part-%: part-%.o
	gcc -o $@ $<
part-%.txt: part-%
	./$< > $@
.SECONDARY:
