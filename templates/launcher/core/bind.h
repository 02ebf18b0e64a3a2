/* From a call of an operator to the arguments of its launches. */

/* The values of an option that a number or a word is, one bit each. */
static uint64_t bits_of_option(const Option *option, const Value *value, int is_number, const char *word)
{
    uint64_t bits = 0;
    for (int i = 0; i < option->count; i++) {
        const OptionValue *known = &option->values[i];
        int is_same = word ? known->text && strcmp(known->text, word) == 0
                    : known->text ? 0
                    : is_number ? (known->is_float ? known->number : (double)known->integer) == value->number
                    : known->is_float ? known->number == (double)value->integer : known->integer == value->integer;
        bits |= (uint64_t)is_same << i;
    }
    return bits;
}

static uint64_t option_bits(const Option *option, const OpLaunch *launch, int index, const Value *value, const char *word)
{
    if (launch->words[index] == -2)
        return option->standard < 0 ? ~UINT64_C(0) : UINT64_C(1) << option->standard;
    return bits_of_option(option, value, launch->is_number[index], word);
}

/* Adds a word to a list of them: 'a', 'b' or 'c'. */
static void list_word(char *list, size_t room, const char *word, int is_first, int is_last)
{
    size_t length = strlen(list);
    snprintf(list + length, room - length, "%s'%s'", is_first ? "" : is_last ? " or " : ", ", word);
}

static int wrong_word(const OpCall *oc, int number, const char *known, int count)
{
    return report(WRONG_VALUE, "%s(): %s is '%.100s', and %s %s expected", oc->op->name, oc->op->scalars[number].name,
                  oc->frame.texts[number], known, count > 1 ? "are" : "is");
}

/* The number of the word that a scalar is, of those that may be given; -1 with a report that has them, listed in `known`. */
static int number_word(const OpCall *oc, int number, char *known, size_t room)
{
    const char *const *words = oc->op->scalars[number].words;
    int index = 0;
    while (words[index] && strcmp(words[index], oc->frame.texts[number]))
        index++;
    oc->frame.scalars[number].integer = index;
    if (words[index])
        return 0;
    for (int i = 0; i < index; i++)
        list_word(known, room, words[i], i == 0, i + 1 == index);
    return wrong_word(oc, number, known, index);
}

/* Whether the kernels know the word that a scalar is; -1 with a report that has those they know. */
static int check_word(const OpCall *oc, int number)
{
    const char *word = oc->frame.texts[number];
    char known[256] = "";
    if (oc->op->scalars[number].words)
        return number_word(oc, number, known, sizeof known);
    for (int i = 0; i < oc->op->launch_count; i++) {
        const OpLaunch *launch = &oc->op->launches[i];
        const Kernel *kernel = &kernels[launch->kernel];
        for (int k = 0; k < kernel->option_count; k++) {
            const Option *option = &kernel->options[k];
            if (launch->words[k] != number || bits_of_option(option, NULL, 0, word))
                continue;
            for (int j = 0; j < option->count; j++)
                list_word(known, sizeof known, option->values[j].text ? option->values[j].text : "", j == 0, j + 1 == option->count);
            return wrong_word(oc, number, known, option->count);
        }
    }
    return 0;
}

/* The arguments of one launch, as its kernel has them. */
static int bind_launch(const OpCall *oc, const OpLaunch *launch, const Kernel *kernel, Value *values, uint64_t *facts, Value *options)
{
    int fault = 0;
    launch->bind(&oc->frame, values, options, &fault);
    if (fault)
        return report_fault(oc->op);
    for (int i = 0; i < kernel->parameter_count; i++) {
        const LaunchParameter *parameter = &kernel->parameters[i];
        int tensor = launch->tensors[i];
        uint64_t fact = TYPE_MASK;
        if (parameter->is_extent) {
            const OpTensor *whole = &oc->op->tensors[launch->tensors[parameter->tensor]];
            int place = parameter->axis;
            Axis axis = { whole->rank, oc->frame.sizes[whole->dims[place]], oc->frame.strides[whole->first_stride + place] };
            if (check_extent(kernel, i, &axis, values, &fact) < 0)
                return -1;
        } else if (tensor >= 0) {
            values[i].address = oc->addresses[tensor];
            fact = oc->types[tensor] | divisibility(values[i].address);
        } else if (parameter->kind == KIND_INTEGER) {
            fact = integer_facts(values[i].integer, 0);
        }
        facts[DEVICE_FACTS + i] = fact & parameter->mask;
    }
    for (int i = 0; i < kernel->option_count; i++) {
        const char *word = launch->words[i] >= 0 ? oc->frame.texts[launch->words[i]] : NULL;
        facts[DEVICE_FACTS + kernel->parameter_count + i] = option_bits(&kernel->options[i], launch, i, &options[i], word);
    }
    return 0;
}

/* Whether a launch is to be done; -1 with a report. */
static int is_wanted(const OpCall *oc, const OpLaunch *launch)
{
    int fault = 0;
    int is_true = !launch->when || launch->when(&oc->frame, &fault) != 0;
    return fault ? report_fault(oc->op) : is_true;
}
