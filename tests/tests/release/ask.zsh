# Types a line and a tab into a new zsh, whose completions are in the directory $0, and prints the line as it is then.
zmodload zsh/zpty
zpty shell "zsh -f -i"
# The prompt is not printed, and what is typed is shown by a key of its own: the line, between marks.
zpty -w shell "PS1= PS2=; stty -echo; fpath=($0 \$fpath); autoload -Uz compinit; compinit -u -D
show() { print -r -- \"<<\$BUFFER>>\"; BUFFER= }; zle -N show; bindkey '^X' show; unsetopt zle_bracketed_paste prompt_cr prompt_sp; print -r -- ready\$((1))"
zpty -r shell line '*ready1*' || exit 1
zpty -w -n shell "$1"$'\t\x18'
zpty -r shell line '*<<*>>*' || exit 1
line=${line##*<<}
print -r -- "${line%%>>*}"
zpty -d shell
