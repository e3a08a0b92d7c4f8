# Completion of Starling's programs in bash. A function for each program follows, made of its table
# of options: it sets options, and for the option $1 the words that its value may be, and the
# action: file, directory or nothing.

_starling() {
  local options='' words='' action='' name=${COMP_WORDS[0]##*/} word=${COMP_WORDS[COMP_CWORD]}
  local option=${COMP_WORDS[COMP_CWORD - 1]}
  COMPREPLY=()
  # readline takes "--lr=0.1" apart at "="
  if [ "$word" = "=" ]; then
    word=''
  elif [ "$option" = "=" ] && [ "$COMP_CWORD" -ge 2 ]; then
    option=${COMP_WORDS[COMP_CWORD - 2]}
  fi
  if "_starling_${name//-/_}" "$option"; then
    mapfile -t COMPREPLY < <(
      compgen -W "$words" -- "$word"
      [ -z "$action" ] || compgen -A "$action" -- "$word"
    )
    [ -z "$action" ] || compopt -o filenames
  elif [ "${word#-}" != "$word" ]; then
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word")
    if [ "${#COMPREPLY[@]}" = 1 ] && [ "${COMPREPLY[0]%=}" != "${COMPREPLY[0]}" ]; then
      compopt -o nospace
    fi
  else
    compopt -o default
  fi
}
