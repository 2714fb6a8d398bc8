# zsh -f capture.zsh FOLDER LINE: what zsh offers when Tab is pressed after LINE, one a line. FOLDER has _lowtide.
if [[ $1 == inner ]]; then  # sourced by the shell that is typed into
  PROMPT=
  fpath=($2 $fpath)
  autoload -Uz compinit
  compinit -u -D
  bindkey '^I' complete-word
  tell_end() { print END; exit }
  comppostfuncs=(tell_end)
  # Tells what would be offered, and offers nothing. With -O, -A or -D it only fills arrays for _describe and its like.
  compadd() {
    if [[ ${@[1,(i)(-|--)]} == *-(O|A|D)\ * ]]; then
      builtin compadd "$@"
      return
    fi
    local -a hits
    builtin compadd -A hits "$@"
    (( $#hits )) && print -rl -- 'HIT '$^hits
  }
  print READY
  return
fi
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "source ${0:A} inner ${(q)1}"
while zpty -r shell line && [[ $line != READY* ]]; do :; done
zpty -w -n shell "$2"$'\t'
while zpty -r shell line && [[ $line != *END* ]]; do
  [[ $line == *'HIT '* ]] && print -r -- ${${line#*HIT }%%$'\r'*}
done
zpty -d shell
