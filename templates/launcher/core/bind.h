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
