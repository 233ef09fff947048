#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Sorts a command line of sbatch's or srun's options and ddprun's.  Sourced by ddprun-sbatch and
# ddprun-srun, which set `slurm` to sbatch or srun, fill `own_options`, and define refuse TEXT and
# own_option NAME VALUE.
#
# An option is written as in these tables: LETTER/NAME, then '=' if it takes a value, or '[=]' if a
# value may follow after '=' (or after the letter).  An option of two tables belongs to the first
# of: own_options, sbatch's or srun's, ddprun's.
# shellcheck disable=SC2034,SC2154  # the other half of the variables is in the sourcing scripts

# Of sbatch and of srun; Slurm 22.05.
common_options=(A/account= acctg-freq= bb= bbf= b/begin= D/chdir= cluster-constraint= M/clusters=
  comment= C/constraint= container= contiguous S/core-spec= cores-per-socket= cpu-freq=
  cpus-per-gpu= c/cpus-per-task= deadline= delay-boot= d/dependency= m/distribution= e/error=
  x/exclude= 'exclusive[=]' export= B/extra-node-info= gpu-bind= gpu-freq= G/gpus= gpus-per-node=
  gpus-per-socket= gpus-per-task= gres= gres-flags= h/help hint= H/hold i/input= J/job-name=
  L/licenses= mail-type= mail-user= mcs-label= mem= mem-bind= mem-per-cpu= mem-per-gpu= mincpus=
  network= 'nice[=]' 'k/no-kill[=]' F/nodefile= w/nodelist= N/nodes= n/ntasks= ntasks-per-core=
  ntasks-per-gpu= ntasks-per-node= ntasks-per-socket= open-mode= o/output= O/overcommit
  s/oversubscribe p/partition= power= prefer= priority= profile= 'propagate[=]' q/qos= Q/quiet
  reboot reservation= signal= sockets-per-node= spread-job switches= test-only thread-spec=
  threads-per-core= t/time= time-min= tmp= usage use-min-nodes v/verbose V/version wckey=)
sbatch_options=(a/array= export-file= 'get-user-env[=]' gid= ignore-pbs kill-on-invalid-dep=
  no-requeue parsable requeue uid= W/wait wait-all-nodes= wrap=)
srun_options=(accel-bind= 'bcast[=]' bcast-exclude= 'compress[=]' cpu-bind= X/disable-status
  epilog= exact het-group= 'I/immediate[=]' interactive jobid= 'K/kill-on-bad-exit[=]' l/label mpi=
  multi-prog Z/no-allocate 'overlap[=]' E/preserve-env prolog= pty quit-on-interrupt r/relative=
  'resv-ports[=]' 'send-libs[=]' slurmd-debug= task-epilog= task-prolog= T/threads= u/unbuffered
  W/wait= whole 'x11[=]')

ddprun_options=(allow= allow-users bind= dry-run duplicate-stderr-filters= duplicate-stdout-filters=
  event-log-handler= exit-code= hang-timeout= local-addr= local-ranks-filter=
  log-dir= log-line-prefix-template= logs-specs= master-addr= master-port= max-restarts= m/module
  monitor-interval= nnodes= no-python no-restart-exit-codes= node-rank= nproc-per-node=
  new-secret numa-binding= page= print-completion= rdzv-auth= rdzv-backend= rdzv-conf= rdzv-encrypt
  rdzv-endpoint= rdzv-id= rdzv-secret-file= r/redirects= role= run-path share-last-lines shutdown-timeout= signals-to-forward= signals-to-handle= standalone start-method=
  t/tee= virtual-local-rank vitals= warm-imports= warm-restarts warm-start worker-store-allow=)

# Cuts "$@" into `slurm_words` (long options, each in one word) and `command_words`: ddprun's
# options, the script and its arguments.  Calls own_option for each of own_options.
sort_words() {
  local list="${slurm}_options[@]"
  options=("${own_options[@]/#/own }" "${common_options[@]/#/slurm }" "${!list/#/slurm }"
    "${ddprun_options[@]/#/ddprun }")
  slurm_words=() command_words=()
  read_options "$@"
  [ "${#words_left[@]}" -gt 0 ] || refuse "there is no script to run"
  command_words+=("${words_left[@]}")
}

# COMMAND_WORD...; says the name of the script, program or module; nothing where that is not clear.
# In a subshell only.
program_of() {
  local options=("${ddprun_options[@]/#/ddprun }") command_words=()
  refuse() { exit 0; }
  read_options "$@"
  local program=${words_left[0]-}
  echo "${program##*/}"
}

# Takes the options; sets `words_left` to what follows them.
read_options() {
  while [ $# -gt 0 ]; do
    case "$1" in
      --) shift; break ;;
      --*) long_option "$@" ;;
      -?*) short_options "$@" ;;
      *) break ;;
    esac
    shift "$used"
  done
  words_left=("$@")
}

# An entry of `options` into `owner`, `letter`, `name` and `kind`.
read_entry() {
  owner=${1%% *} name=${1#* } letter='' kind=''
  case "$name" in ?/*) letter=${name%%/*} name=${name#*/} ;; esac
  case "$name" in
    *'[=]') kind='[=]' name=${name%'[=]'} ;;
    *=) kind='=' name=${name%=} ;;
  esac
}

# NAME, or an unambiguous beginning of one; sets `owner`, `name` and `kind`.
find_name() {
  local wanted=${1//_/-} entry near='' match=''
  for entry in "${options[@]}"; do
    read_entry "$entry"
    if [ "$name" = "$wanted" ]; then return; fi
    if [[ $name == "$wanted"* && " $near " != *" --$name "* ]]; then
      near+="${near:+ }--$name"
      match=$entry
    fi
  done
  # A plugin of the site or a newer Slurm brings more options.
  owner=slurm name=$1 kind=''
  : "${slurm_help:=$("$slurm" --help 2>/dev/null)}"
  if [[ $slurm_help =~ (^|[[:space:]])--"$name"(\[?=|[[:space:]]|$) ]]; then
    case "${BASH_REMATCH[2]}" in '[=') kind='[=]' ;; '=') kind='=' ;; esac
    return
  fi
  case "$near" in
    '') refuse "neither $slurm nor ddprun has an option --$1" ;;
    *' '*) refuse "--$1 is ambiguous: it could be ${near// /, }" ;;
  esac
  read_entry "$match"
}

find_letter() {
  local entry
  for entry in "${options[@]}"; do
    read_entry "$entry"
    if [ "$letter" = "$1" ]; then return; fi
  done
  refuse "neither $slurm nor ddprun has an option -$1"
}

# WORD NEXT...; sets `used` to how many of them it took.
long_option() {
  local written=${1#--}
  used=1
  find_name "${written%%=*}"
  if [[ $written == *=* ]]; then
    [ -n "$kind" ] || refuse "--$name takes no value, and was given '${written#*=}'"
    take "${written#*=}"
  elif [ "$kind" = '=' ]; then
    [ $# -gt 1 ] || refuse "--$name needs a value"
    used=2
    take "$2"
  else
    take
  fi
}

# The same for -N2, -N 2, and for several letters in one word.
short_options() {
  local rest=${1#-}
  used=1
  while [ -n "$rest" ]; do
    find_letter "${rest:0:1}"
    rest=${rest:1}
    if [ "$kind" = '=' ] && [ -z "$rest" ]; then
      [ $# -gt 1 ] || refuse "-$letter needs a value"
      used=2
      rest=$2
    elif [ -z "$kind" ] || [ -z "$rest" ]; then
      take
      continue
    fi
    if [ "$owner" = ddprun ]; then rest=${rest#=}; fi
    take "$rest"
    return
  done
}

take() { # [VALUE]
  case "$owner" in
    own) own_option "$name" "${1-}" ;;
    slurm) slurm_words+=("--$name${1+=$1}") ;;
    ddprun) # which itself refuses a second word that is no value
      if [ "$used" -eq 2 ]; then command_words+=("--$name" "$1"); else command_words+=("--$name${1+=$1}"); fi ;;
  esac
}
